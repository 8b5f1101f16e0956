//! The same as MPI's pairs of strings.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{AccumulateOps, AccumulateOrdering, LockProtocol, MemoryKinds, WindowOptions};
use crate::error::{Call, RmaError};

/// Keys and values, as MPI programs give them.
///
/// Keys that the library does not know, and those of other implementations (`alloc_shm`, `coll_attach`, ...),
/// are accepted, have no effect, and are not reported back.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct WindowInfo {
    options: WindowOptions,
    /// The keys that were set, a bit for each of [`KEYS`].
    set: u16,
}

/// The keys, in the order in which they are reported.
const KEYS: [&str; 11] = [
    "no_locks",
    "accumulate_ordering",
    "accumulate_ops",
    "mpi_accumulate_granularity",
    "same_size",
    "same_disp_unit",
    "alloc_shared_noncontig",
    "mpi_minimum_memory_alignment",
    "mpi_memory_alloc_kinds",
    "mpi_assert_memory_alloc_kinds",
    "rma_lock_protocol",
];

impl WindowInfo {
    /// Nothing set.
    pub fn new() -> Self {
        Self::default()
    }

    /// What `options` say, as strings: every key is set that is reported.
    pub fn of(options: WindowOptions) -> Self {
        let mut info = Self { options, set: 0 };
        info.set =
            KEYS.into_iter().filter(|key| info.get(key).is_some()).fold(0, |set, key| set | bit_of(key));
        info
    }

    /// Whether the key was set; `false` for those that the library does not know.
    pub fn is_set(&self, key: &str) -> bool {
        self.set & bit_of(key) != 0
    }

    /// Sets a key (MPI_Info_set).
    ///
    /// Implements: alloc_shm, coll_attach, disable_shm_accumulate, which_accumulate_ops.
    ///
    /// # Errors
    /// When the key is known and the value is none that it can have. Nothing is changed then.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), RmaError> {
        let options = &mut self.options;
        let value = value.trim();
        let wrong = |key, wanted| RmaError::Info { call: Call::SetInfo, key, value: value.into(), wanted };
        let switch = |key| match value {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(wrong(key, "true or false")),
        };
        let number = |key, wanted| value.parse::<u32>().map_err(|_| wrong(key, wanted));
        match key {
            "no_locks" => options.no_locks = switch("no_locks")?,
            "same_size" => options.same_size = switch("same_size")?,
            "same_disp_unit" => options.same_disp_unit = switch("same_disp_unit")?,
            "alloc_shared_noncontig" => options.alloc_shared_noncontig = switch("alloc_shared_noncontig")?,
            "accumulate_ordering" => {
                options.accumulate_ordering = ordering_of(value)
                    .ok_or_else(|| wrong("accumulate_ordering", "none, or some of rar,raw,war,waw"))?;
            }
            "accumulate_ops" => {
                options.accumulate_ops = match value {
                    "same_op" => AccumulateOps::SameOp,
                    "same_op_no_op" => AccumulateOps::SameOpNoOp,
                    _ => return Err(wrong("accumulate_ops", "same_op or same_op_no_op")),
                }
            }
            "mpi_accumulate_granularity" => {
                let key = "mpi_accumulate_granularity";
                options.accumulate_granularity = number(key, "a number of bytes, or 0")?;
            }
            "mpi_minimum_memory_alignment" => {
                let (key, wanted) = ("mpi_minimum_memory_alignment", "a power of two, in bytes, up to 1 GiB");
                let alignment = number(key, wanted)?;
                if !alignment.is_power_of_two() || alignment > ALIGNMENT_MAX {
                    return Err(wrong(key, wanted));
                }
                options.memory_alignment = alignment;
            }
            "mpi_memory_alloc_kinds" => options.memory_kinds = MemoryKinds::supported_of(value),
            // An assertion about memory that is not supported is no hint to anything: it is not in force.
            "mpi_assert_memory_alloc_kinds" => options.asserted_kinds = MemoryKinds::all_of(value),
            "rma_lock_protocol" => {
                let protocol = LockProtocol::of(value);
                options.lock_protocol =
                    Some(protocol.ok_or_else(|| wrong("rma_lock_protocol", "message, nic or auto"))?);
            }
            _ => {}
        }
        self.set |= bit_of(key);
        Ok(())
    }

    /// The value of a key; `None` when the library does not know the key, or nothing is known under it
    /// (MPI_Info_get_string).
    pub fn get(&self, key: &str) -> Option<String> {
        let options = &self.options;
        let value = match key {
            "no_locks" => options.no_locks.to_string(),
            "accumulate_ordering" => ordering_text(options.accumulate_ordering),
            "accumulate_ops" => match options.accumulate_ops {
                AccumulateOps::SameOp => "same_op".into(),
                AccumulateOps::SameOpNoOp => "same_op_no_op".into(),
            },
            "mpi_accumulate_granularity" => options.accumulate_granularity.to_string(),
            "same_size" => options.same_size.to_string(),
            "same_disp_unit" => options.same_disp_unit.to_string(),
            "alloc_shared_noncontig" => options.alloc_shared_noncontig.to_string(),
            "mpi_minimum_memory_alignment" if options.memory_alignment > 0 => {
                options.memory_alignment.to_string()
            }
            "mpi_memory_alloc_kinds" if !options.memory_kinds.is_empty() => {
                options.memory_kinds.names().collect::<Vec<_>>().join(",")
            }
            "mpi_assert_memory_alloc_kinds" => options.asserted_kinds?.names().collect::<Vec<_>>().join(","),
            "rma_lock_protocol" => options.lock_protocol?.name().into(),
            _ => return None,
        };
        Some(value)
    }

    /// Every key that is reported, with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        KEYS.into_iter().filter_map(|key| self.get(key).map(|value| (key, value)))
    }

    /// The same as typed fields.
    pub fn options(&self) -> WindowOptions {
        self.options
    }
}

/// Largest alignment that may be asked for, bytes.
const ALIGNMENT_MAX: u32 = 1 << 30;

/// The key's bit among those that are set; 0 for one that is not known.
fn bit_of(key: &str) -> u16 {
    KEYS.iter().position(|known| *known == key).map_or(0, |at| 1 << at)
}

fn ordering_of(list: &str) -> Option<AccumulateOrdering> {
    let mut ordering = AccumulateOrdering::NONE;
    if list == "none" {
        return Some(ordering);
    }
    for word in list.split(',') {
        match word.trim() {
            "rar" => ordering.rar = true,
            "raw" => ordering.raw = true,
            "war" => ordering.war = true,
            "waw" => ordering.waw = true,
            _ => return None,
        }
    }
    Some(ordering)
}

fn ordering_text(ordering: AccumulateOrdering) -> String {
    let AccumulateOrdering { rar, raw, war, waw } = ordering;
    let mut text = String::new();
    for (word, is_kept) in [("rar", rar), ("raw", raw), ("war", war), ("waw", waw)] {
        if is_kept {
            text += &if text.is_empty() { word.into() } else { format!(",{word}") };
        }
    }
    if text.is_empty() {
        text += "none";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_reported_and_changes_its_field() {
        let pairs = [
            ("no_locks", "true"),
            ("accumulate_ordering", "rar,waw"),
            ("accumulate_ops", "same_op"),
            ("mpi_accumulate_granularity", "64"),
            ("same_size", "true"),
            ("same_disp_unit", "true"),
            ("alloc_shared_noncontig", "true"),
            ("mpi_minimum_memory_alignment", "65536"),
            ("mpi_memory_alloc_kinds", "system,mpi"),
            ("mpi_assert_memory_alloc_kinds", "system,mpi:win_allocate"),
            ("rma_lock_protocol", "nic"),
        ];
        let default = WindowInfo::new();
        for (key, value) in pairs {
            let mut info = WindowInfo::new();
            info.set(key, value).unwrap();
            assert_eq!(info.get(key).as_deref(), Some(value));
            assert_ne!(info.options(), default.options(), "{key}");
            assert!(KEYS.iter().all(|other| info.is_set(other) == (*other == key)));
            assert_eq!(WindowInfo::of(info.options()).options(), info.options());
        }
        let all = pairs.iter().fold(WindowInfo::new(), |mut info, (key, value)| {
            info.set(key, value).unwrap();
            info
        });
        assert_eq!(all.iter().map(|(key, _)| key).collect::<Vec<_>>(), KEYS);
    }

    /// Shows: alloc_shm, coll_attach, disable_shm_accumulate, which_accumulate_ops.
    #[test]
    fn strange_keys_are_ignored_and_strange_values_refused() {
        let mut info = WindowInfo::new();
        for key in ["alloc_shm", "coll_attach", "disable_shm_accumulate", "which_accumulate_ops", "no_such"] {
            info.set(key, "true").unwrap();
            assert_eq!((info.get(key), info.is_set(key)), (None, false));
        }
        assert_eq!((&info, info.options()), (&WindowInfo::new(), WindowOptions::DEFAULT));
        for (key, value) in [
            ("no_locks", "perhaps"),
            ("accumulate_ordering", "rar,rara"),
            ("accumulate_ops", "any"),
            ("mpi_accumulate_granularity", "-1"),
            ("rma_lock_protocol", "nics"),
            ("mpi_minimum_memory_alignment", "24"),
            ("mpi_minimum_memory_alignment", "2147483648"),
        ] {
            let message = info.set(key, value).unwrap_err().to_string();
            assert!(message.contains(key) && message.contains(value), "{message}");
        }
        assert_eq!(info, WindowInfo::new());
    }

    /// Shows: mpi_assert_memory_alloc_kinds, MPI-4.1 12.4.3.
    #[test]
    fn an_assertion_about_unsupported_memory_is_not_in_force() {
        let key = "mpi_assert_memory_alloc_kinds";
        let mut info = WindowInfo::new();
        assert_eq!(info.get(key), None);
        for (value, reported) in [("system", Some("system")), ("system,cuda:device", None), ("", Some(""))] {
            info.set(key, value).unwrap();
            assert_eq!(info.get(key).as_deref(), reported, "{value}");
        }
    }

    #[test]
    fn order_is_text_both_ways() {
        for text in ["none", "rar", "raw,war", "rar,raw,war,waw"] {
            assert_eq!(ordering_text(ordering_of(text).unwrap()), text);
        }
        assert_eq!(ordering_of(" rar , waw "), ordering_of("waw,rar"));
        assert_eq!(ordering_of(""), None);
    }
}
