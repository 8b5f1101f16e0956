//! Sizes that nobody can mean are refused when a job is joined, whoever says them, with the limit.

use rma::{Error, ErrorClass, ErrorKind, Job, Options, RmaError};
use rma_bootstrap::environment::Environment;
use rma_bootstrap::settings::Settings;
use rma_core::config::{Config, DEFERRED_BYTES_MAX, REPLY_BUFFERS_MAX, THINGS_MAX, THRESHOLD_BYTES_MAX};

/// A size: the end of its variable's name, if it has one, its limit, and how it is set.
type Size = (&'static str, Option<&'static str>, usize, fn(&mut Config, usize));

/// Sets a field of either integer type.
macro_rules! size {
    ($field:ident, $variable:expr, $most:expr) => {
        (stringify!($field), $variable, $most as usize, |config, value| {
            config.$field = value.try_into().unwrap_or(u32::MAX as _);
        })
    };
}

const SIZES: [Size; 17] = [
    size!(piggyback_threshold, Some("RMA_PIGGYBACK_THRESHOLD"), THINGS_MAX),
    size!(region_records, Some("RMA_REGION_RECORDS"), THINGS_MAX),
    size!(region_holders, Some("RMA_REGION_HOLDERS"), THINGS_MAX),
    size!(slots, Some("RMA_SLOTS"), THINGS_MAX),
    size!(operation_pool, Some("RMA_OPERATION_POOL"), THINGS_MAX),
    size!(operation_pool_global, Some("RMA_OPERATION_POOL_GLOBAL"), THINGS_MAX),
    size!(target_pool, Some("RMA_TARGET_POOL"), THINGS_MAX),
    size!(target_pool_global, Some("RMA_TARGET_POOL_GLOBAL"), THINGS_MAX),
    size!(lock_waiters, Some("RMA_LOCK_WAITERS"), THINGS_MAX),
    size!(notices, Some("RMA_NOTICES"), THINGS_MAX),
    size!(group_members, Some("RMA_GROUP_MEMBERS"), THINGS_MAX),
    size!(peers, Some("RMA_PEERS"), THINGS_MAX),
    size!(native_block_bytes_min, Some("RMA_NATIVE_BLOCK_BYTES"), THRESHOLD_BYTES_MAX),
    size!(native_region_bytes_min, Some("RMA_NATIVE_REGION_BYTES"), THRESHOLD_BYTES_MAX),
    size!(small_bytes_max, Some("RMA_SINGLE_OP_THRESHOLD"), THRESHOLD_BYTES_MAX),
    size!(deferred_bytes, None, DEFERRED_BYTES_MAX),
    size!(reply_buffers, None, REPLY_BUFFERS_MAX),
];

#[test]
fn a_program_is_refused_what_is_above_the_limit() -> Result<(), Error> {
    for (field, variable, limit, set) in SIZES {
        for asked in [limit + 1, u32::MAX as usize] {
            let mut options = Options::load()?;
            set(&mut options.config, asked);
            let error = Job::init_with(options).unwrap_err();
            assert!(
                matches!(error.rma(), Some(RmaError::Setting { asked: said, most, .. })
                    if (*said, *most) == (asked, limit)),
                "{field}: {error}"
            );
            assert_eq!(error.class(), ErrorClass::Argument);
            let text = error.to_string();
            for part in [field, variable.unwrap_or(""), &limit.to_string(), &asked.to_string()] {
                assert!(text.contains(part), "no {part} in {text}");
            }
        }
        let mut config = Config::default();
        set(&mut config, limit);
        assert_eq!(config.check(), Ok(()), "{field}: the limit itself");
    }
    Ok(())
}

#[test]
fn the_environment_is_refused_the_same() {
    for (field, variable, limit, set) in SIZES {
        let Some(variable) = variable else { continue };
        let nowhere = ("XDG_CONFIG_HOME", "/nonexistent");
        let load = |value: usize| {
            let pairs = [nowhere, (variable, &value.to_string())];
            Settings::load_from(&Environment::from_pairs(pairs)).map(Options::from_settings)
        };
        let unset = Settings::load_from(&Environment::from_pairs([nowhere])).map(Options::from_settings);
        let mut expected = unset.unwrap().config;
        set(&mut expected, limit);
        assert_eq!(load(limit).unwrap().config, expected, "{field}");
        let error = Error::from(load(limit + 1).unwrap_err());
        assert!(matches!(error.kind(), ErrorKind::Settings(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("{variable}={}", limit + 1)), "{text}");
        assert!(text.contains(&format!("to {limit}")), "{text}");
    }
}
