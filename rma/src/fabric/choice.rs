//! Which provider a job communicates over.

use std::net::IpAddr;

use rma_core::provider::{Endpoint, ProviderError};
use rma_ofi::{Ofi, OfiEndpoint};
use rma_shm::ShmEndpoint;

use super::both::{self, NO_NETWORK, SHM_AND};
use super::description::{details, memory_line, Description};
use super::{Fabric, FabricEndpoint, FabricOptions};
use crate::error::Result;

/// What decides beside the options: the same at all ranks, but for where each is on its host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Ranks of the job.
    pub(crate) size: u32,
    /// This process's rank among those on its host.
    pub(crate) local_rank: u32,
    /// Ranks on this host.
    pub(crate) local_size: u32,
    /// Each rank has a ghost, or this is one.
    pub(crate) has_ghost: bool,
    /// Progress is made by a signal's handler, which should not make or drop mappings, as shared memory does when it
    /// is first used and when somebody is gone. The same at all ranks.
    pub(crate) in_handlers: bool,
}

impl Place {
    /// All ranks are on one host.
    pub(crate) fn single_host(&self) -> bool {
        self.local_size == self.size
    }
}

/// An endpoint, and why it is this one.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) endpoint: FabricEndpoint,
    pub(crate) description: Description,
    /// The address of this host that was tried with other hosts, if that was necessary.
    pub(crate) host_address: Option<String>,
}

/// What `RMA_PROVIDER` asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Wanted {
    /// Whatever is best.
    Any,
    Shm,
    Verbs,
    /// libfabric: the provider with this name, or its best.
    Ofi(Option<String>),
    /// Shared memory beside another.
    Beside(Box<Self>),
}

impl Wanted {
    fn of(provider: Option<&str>) -> Self {
        match provider {
            None => Self::Any,
            Some(SHM) => Self::Shm,
            Some(VERBS) => Self::Verbs,
            Some(OFI) => Self::Ofi(None),
            Some(name) if name.starts_with(SHM_AND) => {
                let other = Some(&name[SHM_AND.len()..]).filter(|other| !other.is_empty());
                Self::Beside(Box::new(Self::of(other.or(Some(OFI)))))
            }
            Some(name) => {
                let name = name.strip_prefix(OFI_PREFIX).unwrap_or(name);
                Self::Ofi(Some(name).filter(|name| !name.is_empty()).map(str::to_owned))
            }
        }
    }
}

/// Chooses a provider and opens an endpoint. `prove` tries which of these addresses of this host others get through
/// to.
///
/// # Errors
/// When what was asked for, or everything, cannot be had; the message says why and what can be done.
pub(crate) fn open(
    options: &FabricOptions,
    place: &Place,
    prove: impl FnOnce(&[IpAddr]) -> Result<Option<IpAddr>>,
) -> Result<Opened> {
    match Wanted::of(options.provider.as_deref()) {
        Wanted::Shm if !place.single_host() => Err(refused(
            "shm: the ranks are on several hosts, and memory is shared on one host only; leave RMA_PROVIDER unset, or \
             name a network's provider, as shm+ofi does for ranks of one host to share memory"
                .to_owned(),
        )
        .into()),
        Wanted::Shm => Ok(open_shm(options, place, "asked for")?),
        Wanted::Verbs => Ok(open_verbs(options, place)?),
        Wanted::Ofi(name) => {
            let reason = if name.is_some() { "asked for" } else { "libfabric was asked for, and prefers it" };
            open_ofi(options, place, name, reason, prove)
        }
        Wanted::Any if place.single_host() && place.in_handlers => {
            open_ofi(options, place, None, "it is the best that libfabric has here, and progress is made by signals", prove)
        }
        Wanted::Any if place.single_host() => match open_shm(options, place, "all ranks are on this host") {
            Ok(opened) => Ok(opened),
            Err(error) => {
                let reason = format!("memory cannot be shared here ({error})");
                open_ofi(options, place, None, &reason, prove)
            }
        },
        Wanted::Any if place.in_handlers || options.native_atomics => {
            open_ofi(options, place, None, "it is the best that libfabric has here", prove)
        }
        Wanted::Any => {
            let network = open_ofi(options, place, None, "", prove)?;
            let reason = "the ranks of a host share memory, and it is the best that libfabric has here";
            Ok(both::open_beside(options, place, reason, false, network)?)
        }
        Wanted::Beside(other) => {
            // They would not be used, and some networks give up orders for them.
            let without_atomics = FabricOptions { native_atomics: false, ..options.clone() };
            let network = match *other {
                Wanted::Verbs => open_verbs(&without_atomics, place)?,
                Wanted::Ofi(name) => open_ofi(&without_atomics, place, name, "", prove)?,
                Wanted::Any | Wanted::Shm | Wanted::Beside(_) => return Err(refused(NO_NETWORK.to_owned()).into()),
            };
            Ok(both::open_beside(options, place, "asked for", true, network)?)
        }
    }
}

fn open_shm(
    options: &FabricOptions,
    place: &Place,
    reason: &str,
) -> std::result::Result<Opened, ProviderError> {
    let endpoint = ShmEndpoint::open(&options.shm(place.local_size))?;
    let description = Description {
        provider: SHM.to_owned(),
        reason: reason.to_owned(),
        domain: "this host".to_owned(),
        nic: None,
        libfabric: None,
        limits: *endpoint.limits(),
        native: *endpoint.native(),
        native_allocated: *endpoint.native_allocated(),
        memory_bytes: endpoint.memory_bytes(),
        details: details(&endpoint.description(), &endpoint) + &memory_line(&endpoint),
        candidates: format!(
            "libfabric's providers: not used; RMA_PROVIDER=ofi takes the best\n{VERBS_UNUSED}"
        ),
    };
    Ok(Opened { endpoint: FabricEndpoint(Fabric::Shm(endpoint)), description, host_address: None })
}

#[cfg(feature = "verbs")]
fn open_verbs(options: &FabricOptions, place: &Place) -> std::result::Result<Opened, ProviderError> {
    let endpoint = rma_verbs::VerbsEndpoint::open(&options.verbs(place.local_rank))
        .map_err(|error| refused(format!("verbs: {error}{VERBS_REMEDY}")))?;
    let description = Description {
        provider: VERBS.to_owned(),
        reason: "asked for".to_owned(),
        domain: endpoint.device_name().to_owned(),
        nic: Some(endpoint.device_name().to_owned()),
        libfabric: None,
        limits: *endpoint.limits(),
        native: *endpoint.native(),
        native_allocated: *endpoint.native_allocated(),
        memory_bytes: endpoint.memory_bytes(),
        details: details(&endpoint.description(), &endpoint),
        candidates: "libfabric's providers: not used; RMA_PROVIDER=ofi takes the best\n".to_owned(),
    };
    Ok(Opened { endpoint: FabricEndpoint(Fabric::Verbs(endpoint)), description, host_address: None })
}

#[cfg(not(feature = "verbs"))]
fn open_verbs(_: &FabricOptions, _: &Place) -> std::result::Result<Opened, ProviderError> {
    Err(refused(format!(
        "verbs: this program was built without it (feature `verbs` of the crate `rma`){VERBS_REMEDY}"
    )))
}

fn open_ofi(
    options: &FabricOptions,
    place: &Place,
    name: Option<String>,
    reason: &str,
    prove: impl FnOnce(&[IpAddr]) -> Result<Option<IpAddr>>,
) -> Result<Opened> {
    let mut wanted = options.libfabric();
    wanted.provider = name;
    wanted.single_host = place.single_host();
    wanted.local_rank = place.local_rank;
    let discover = |wanted: &rma_ofi::Options| {
        Ofi::discover(wanted).map_err(|error| refused(format!("{error}{}", beside_libfabric(place))))
    };
    let mut choice = discover(&wanted)?;
    // All ranks have the same provider, so that all or none are here.
    if let Some(address) = choice.addresses.as_deref().map(prove).transpose()?.flatten() {
        wanted.host_address = Some(address.to_string());
        choice = discover(&wanted)?;
    }
    let endpoint = OfiEndpoint::open(&choice, &wanted)?;
    let opened = endpoint.description();
    let is_ours = [SHM, VERBS].contains(&opened.provider.as_str());
    let description = Description {
        provider: format!("{}{}", if is_ours { OFI_PREFIX } else { "" }, opened.provider),
        reason: reason.to_owned(),
        domain: opened.domain.clone(),
        nic: opened.nic.clone(),
        libfabric: Some((opened.library_version, opened.library_path.clone())),
        limits: opened.limits,
        native: opened.native,
        native_allocated: opened.native,
        memory_bytes: opened.memory_bytes,
        details: opened.to_string(),
        candidates: format!("{choice}{VERBS_UNUSED}"),
    };
    let host_address = wanted.host_address;
    Ok(Opened { endpoint: FabricEndpoint(Fabric::Ofi(endpoint)), description, host_address })
}

/// What can be done where libfabric, or its provider, cannot be had.
fn beside_libfabric(place: &Place) -> String {
    let mut remedy = String::new();
    if place.single_host() {
        remedy += "\nAll ranks are on this host: RMA_PROVIDER=shm does without libfabric";
    }
    #[cfg(feature = "verbs")]
    {
        let devices = rma_verbs::device_names();
        if !devices.is_empty() {
            remedy += &format!(
                "\nRDMA devices of this host ({}): RMA_PROVIDER=verbs does without libfabric",
                devices.join(", ")
            );
        }
    }
    remedy
}

#[cold]
pub(super) fn refused(message: String) -> ProviderError {
    ProviderError { message }
}

/// The names of what is not libfabric's.
const SHM: &str = "shm";
const VERBS: &str = "verbs";

/// libfabric, and what names of its providers may begin with.
const OFI: &str = "ofi";
const OFI_PREFIX: &str = "ofi:";

const VERBS_UNUSED: &str =
    "verbs (ibverbs without libfabric): used only when RMA_PROVIDER=verbs asks for it\n";
const VERBS_REMEDY: &str =
    "\nlibfabric's provider of that name is RMA_PROVIDER=ofi:verbs; with RMA_PROVIDER unset one is \
                            chosen";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_one_provider() {
        let ofi = |name: &str| Wanted::Ofi(Some(name.to_owned()));
        for (provider, wanted) in [
            ("shm", Wanted::Shm),
            ("verbs", Wanted::Verbs),
            ("ofi", Wanted::Ofi(None)),
            ("ofi:", Wanted::Ofi(None)),
            ("ofi:shm", ofi("shm")),
            ("ofi:verbs", ofi("verbs")),
            ("ofi:tcp;ofi_rxm", ofi("tcp;ofi_rxm")),
            ("verbs;ofi_rxm", ofi("verbs;ofi_rxm")),
            ("tcp", ofi("tcp")),
            ("shm+tcp;ofi_rxm", Wanted::Beside(Box::new(ofi("tcp;ofi_rxm")))),
            ("shm+verbs", Wanted::Beside(Box::new(Wanted::Verbs))),
            ("shm+", Wanted::Beside(Box::new(Wanted::Ofi(None)))),
        ] {
            assert_eq!(Wanted::of(Some(provider)), wanted, "{provider}");
        }
        assert_eq!(Wanted::of(None), Wanted::Any);
    }

    const PLACE: Place =
        Place { size: 4, local_rank: 1, local_size: 4, has_ghost: false, in_handlers: false };
    const SPREAD: Place = Place { local_size: 2, ..PLACE };

    fn try_open(provider: &str, place: &Place) -> Result<Opened> {
        let options = FabricOptions { provider: Some(provider.to_owned()), ..FabricOptions::default() };
        open(&options, place, |_| Ok(None))
    }

    #[test]
    fn ranks_of_a_host_share_memory_beside_a_network() {
        for (options, place, provider) in [
            (FabricOptions::default(), SPREAD, "shm+"),
            (FabricOptions::default(), PLACE, "shm"),
            (FabricOptions { native_atomics: true, ..FabricOptions::default() }, SPREAD, ""),
            (FabricOptions::default(), Place { in_handlers: true, ..SPREAD }, ""),
        ] {
            let opened = open(&options, &place, |_| Ok(None)).unwrap();
            let chosen = &opened.description.provider;
            let expected = match provider {
                "" => !chosen.contains("shm"),
                SHM => chosen == SHM,
                prefix => chosen.strip_prefix(prefix).is_some_and(|network| !network.is_empty()),
            };
            assert!(expected, "{chosen} with {options:?} at {place:?}");
        }
        let both = try_open("shm+net", &PLACE).unwrap().description;
        assert_eq!((both.provider.as_str(), both.reason.as_str()), ("shm+net", "asked for"));
        let text = both.to_string();
        assert!(
            text.contains("on this host         shared memory: memory of the library's mapped"),
            "{text}"
        );
        assert!(text.contains("between hosts\n  libfabric "), "{text}");
        let alone = try_open("shm+net", &Place { local_rank: 0, local_size: 1, ..PLACE }).unwrap();
        assert!(alone.description.to_string().contains("no other rank is on this host"));
    }

    #[test]
    fn shared_memory_that_was_asked_for_is_there_or_an_error() {
        // libfabric's own addresses in shared memory leave no room for another.
        let error = try_open("shm+ofi:shm", &PLACE).unwrap_err().to_string();
        assert!(
            error.contains("memory cannot be shared here") && error.contains("bytes together"),
            "{error}"
        );
        // A rank alone on its host has nobody to share with.
        let alone = Place { local_rank: 0, local_size: 1, ..PLACE };
        assert_eq!(try_open("shm+net", &alone).unwrap().description.provider, "shm+net");
    }

    #[test]
    fn what_cannot_be_had_says_why_and_what_to_do() {
        let error = try_open("shm", &SPREAD).unwrap_err().to_string();
        assert!(error.contains("several hosts") && error.contains("RMA_PROVIDER unset"), "{error}");
        // Where there is a device it opens.
        let error = try_open("verbs", &PLACE).map(|opened| opened.description.provider);
        let error = error.map_err(|error| error.to_string());
        assert!(
            error.as_ref().is_ok_and(|name| name == VERBS)
                || error.as_ref().is_err_and(|error| error.contains("ofi:verbs")),
            "{error:?}"
        );
        let error = try_open("shm+shm", &PLACE).unwrap_err().to_string();
        assert!(error.contains("shm+tcp"), "{error}");
        let error = try_open("carrier-pigeon", &PLACE).unwrap_err().to_string();
        assert!(error.contains("carrier-pigeon") && error.contains("RMA_PROVIDER=shm"), "{error}");
    }

    #[test]
    fn one_host_needs_no_libfabric() {
        let nowhere = FabricOptions { library: Some("/nonexistent".into()), ..FabricOptions::default() };
        let opened = open(&nowhere, &PLACE, |_| Ok(None)).unwrap();
        assert_eq!((opened.description.provider.as_str(), opened.description.libfabric), (SHM, None));
        let elsewhere = open(&nowhere, &SPREAD, |_| Ok(None));
        assert!(elsewhere.unwrap_err().to_string().contains("/nonexistent"));
    }
}
