//! The settings of the project: what there is, where each value comes from, and what was misspelt.
//!
//! A value is taken from the first of these that has one: a command-line flag, the environment, the
//! settings file, the built-in default. The file is the one that `RMA_CONFIG` names, else
//! `$XDG_CONFIG_HOME/rma.conf`, else `~/.config/rma.conf`; it has lines `NAME = value`, and `#`
//! begins a comment.

mod file;
mod nearest;
mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use nearest::nearest;
pub use table::{Audience, Kind, Setting, SETTINGS};

use crate::environment::Environment;

/// Names with this prefix steer tests; they are known without being in the table.
pub const TEST_PREFIX: &str = "RMA_TEST_";

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// A command-line flag.
    Flag,
    /// The environment.
    Environment,
    /// A line of the settings file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
    /// Nobody set it.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("command line"),
            Self::Environment => f.write_str("environment"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A setting that cannot be used, or a settings file that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsError {
    message: String,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SettingsError {}

/// A value that somebody set.
#[derive(Clone, Debug)]
struct Value {
    text: String,
    source: Source,
}

/// The values of all settings.
#[derive(Clone, Default, Debug)]
pub struct Settings {
    values: BTreeMap<&'static str, Value>,
    warnings: Vec<String>,
}

impl Settings {
    /// The settings of this process: its environment and its settings file.
    ///
    /// # Errors
    /// When a value is not of its setting's kind, or a file that exists (or that `RMA_CONFIG` names)
    /// cannot be read or has a malformed line. The message names the value, where it comes from, and
    /// what is accepted.
    pub fn load() -> Result<Self, SettingsError> {
        Self::load_from(&Environment::of_this_process())
    }

    /// As [`Settings::load`], from this environment.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn load_from(environment: &Environment) -> Result<Self, SettingsError> {
        let mut settings = Self::default();
        if let Some((path, text)) = file::read(environment)? {
            settings.add_file(&path, &text)?;
        }
        settings.add_environment(environment)?;
        Ok(settings)
    }

    /// Sets a value that a command-line flag gave; it wins over every other source.
    ///
    /// # Errors
    /// When there is no such setting, or the value is not of its kind.
    pub fn set_flag(&mut self, name: &str, value: &str) -> Result<(), SettingsError> {
        match find(name) {
            Some(setting) => self.set(setting, value, Source::Flag),
            None => Err(SettingsError { message: unknown(name, &Source::Flag) }),
        }
    }

    /// The value of a setting: the one somebody set or the built-in default. `None` where the default
    /// is left to the part of the library that uses it.
    pub fn text(&self, name: &str) -> Option<&str> {
        let set = self.values.get(name).map(|value| value.text.as_str());
        set.or_else(|| find(name).map(|setting| setting.default).filter(|default| !default.is_empty()))
    }

    /// The value of a setting of the kind [`Kind::Switch`].
    pub fn switch(&self, name: &str) -> Option<bool> {
        self.text(name).map(|text| text == "1")
    }

    /// The value of a setting of the kind [`Kind::Count`].
    pub fn count(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// The value of a setting of the kind [`Kind::Seconds`].
    pub fn seconds(&self, name: &str) -> Option<Duration> {
        parse_seconds(self.text(name)?)
    }

    /// Where the value of a setting comes from.
    pub fn source(&self, name: &str) -> &Source {
        self.values.get(name).map_or(&Source::Default, |value| &value.source)
    }

    /// Every setting with its value and the value's source, in the order of the table.
    pub fn entries(&self) -> impl Iterator<Item = (&'static Setting, Option<&str>, &Source)> {
        SETTINGS.iter().map(|setting| (setting, self.text(setting.name), self.source(setting.name)))
    }

    /// Names that look like settings and are none, each with the nearest setting. `rmarun` prints them
    /// once for the job, so a launched rank should not.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn add_file(&mut self, path: &std::path::Path, text: &str) -> Result<(), SettingsError> {
        for entry in file::parse(text) {
            let (line, pair) = entry;
            let source = Source::File { path: path.to_path_buf(), line };
            let (name, value) = pair.ok_or_else(|| SettingsError {
                message: format!("{source}: a line of a settings file is 'NAME = value' or '# comment'"),
            })?;
            match find(name) {
                Some(setting) if setting.audience == Audience::Internal => self.warnings.push(format!(
                    "{source}: {name} is set by rmarun for each rank and has no effect in a file"
                )),
                Some(_) if value.is_empty() => {}
                Some(setting) => self.set(setting, value, source)?,
                None if name.starts_with(TEST_PREFIX) => {}
                None => self.warnings.push(unknown(name, &source)),
            }
        }
        Ok(())
    }

    fn add_environment(&mut self, environment: &Environment) -> Result<(), SettingsError> {
        for (name, value) in environment.with_prefix("RMA_") {
            match find(name) {
                // Set to nothing is the shell's way to unset a variable for one command.
                Some(_) if value.is_empty() => {}
                Some(setting) => self.set(setting, value, Source::Environment)?,
                None if name.starts_with(TEST_PREFIX) => {}
                None => self.warnings.push(unknown(name, &Source::Environment)),
            }
        }
        Ok(())
    }

    fn set(&mut self, setting: &'static Setting, text: &str, source: Source) -> Result<(), SettingsError> {
        if !accepts(setting.kind, text) {
            let message = format!("{}={text} ({source}): must be {}", setting.name, setting.kind);
            return Err(SettingsError { message });
        }
        self.values.insert(setting.name, Value { text: text.to_owned(), source });
        Ok(())
    }
}

/// The setting with this name.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

fn accepts(kind: Kind, text: &str) -> bool {
    match kind {
        Kind::Text => true,
        Kind::Switch => matches!(text, "0" | "1"),
        Kind::Count { least, most } => text.parse().is_ok_and(|count| (least..=most).contains(&count)),
        Kind::Seconds => parse_seconds(text).is_some(),
        Kind::OneOf(choices) => choices.contains(&text),
    }
}

/// A length of time in seconds, with or without a fraction, above zero.
pub fn parse_seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok().filter(|duration| !duration.is_zero())
}

fn unknown(name: &str, source: &Source) -> String {
    let candidates = SETTINGS.iter().filter(|setting| setting.audience == Audience::User);
    match nearest(name, candidates.map(|setting| setting.name)) {
        Some(similar) => format!("unknown setting {name} ({source}): did you mean {similar}?"),
        None => format!("unknown setting {name} ({source}); `rmarun --help-env` lists all of them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn load(pairs: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        // A file that the developer's own account may have is none of the test's business.
        let nowhere = [("XDG_CONFIG_HOME", "/nonexistent")];
        Settings::load_from(&Environment::from_pairs(pairs.iter().chain(&nowhere).copied()))
    }

    #[test]
    fn defaults_and_sources() {
        let settings = load(&[("RMA_SLOTS", "8"), ("RMA_PROVIDER", "")]).unwrap();
        assert_eq!(settings.switch("RMA_SINGLE_OP_LOCK"), Some(true));
        assert_eq!(settings.source("RMA_SINGLE_OP_LOCK"), &Source::Default);
        assert_eq!(settings.count("RMA_SLOTS"), Some(8));
        assert_eq!(settings.source("RMA_SLOTS"), &Source::Environment);
        assert_eq!(settings.text("RMA_PROVIDER"), None);
        assert_eq!(settings.seconds("RMA_BOOTSTRAP_TIMEOUT"), Some(Duration::from_secs(60)));
        assert_eq!(settings.entries().count(), SETTINGS.len());
    }

    #[test]
    fn flag_beats_environment_beats_file() {
        let mut settings = Settings::default();
        settings
            .add_file(Path::new("f"), "# mine\n\nRMA_SLOTS = 1 # few\nRMA_COALESCE=0\nRMA_PROVIDER = tcp\n")
            .unwrap();
        assert_eq!(settings.source("RMA_SLOTS"), &Source::File { path: "f".into(), line: 3 });
        let environment = Environment::from_pairs([("RMA_SLOTS", "2"), ("RMA_COALESCE", "1")]);
        settings.add_environment(&environment).unwrap();
        settings.set_flag("RMA_SLOTS", "3").unwrap();
        assert_eq!((settings.count("RMA_SLOTS"), settings.source("RMA_SLOTS")), (Some(3), &Source::Flag));
        assert_eq!(settings.switch("RMA_COALESCE"), Some(true));
        assert_eq!(settings.text("RMA_PROVIDER"), Some("tcp"));
    }

    #[test]
    fn unknown_names_warn_with_the_nearest() {
        let settings = load(&[("RMA_PROVIDR", "tcp"), ("RMA_TEST_OFI", "tcp"), ("RMAX", "1")]).unwrap();
        assert_eq!(settings.warnings().len(), 1);
        assert!(settings.warnings()[0].contains("did you mean RMA_PROVIDER?"), "{:?}", settings.warnings());
        let settings = load(&[("RMA_QQQQQQQQQQQQQ", "1")]).unwrap();
        assert!(settings.warnings()[0].contains("--help-env"));
        let error = Settings::default().set_flag("RMA_SLOT", "1").unwrap_err();
        assert!(error.to_string().contains("RMA_SLOTS"));
    }

    #[test]
    fn wrong_values_are_errors_that_say_what_is_accepted() {
        for (name, value, accepted) in [
            ("RMA_COALESCE", "yes", "0 or 1"),
            ("RMA_SLOTS", "-1", "a whole number from 1 to 1048576"),
            ("RMA_SLOTS", "0", "a whole number from 1 to 1048576"),
            ("RMA_TARGET_POOL", "16777216", "a whole number from 1 to 1048576"),
            ("RMA_TARGET_POOL", "99999999999999999999", "a whole number from 1 to 1048576"),
            ("RMA_PEERS", "1", "a whole number from 2 to 1048576"),
            ("RMA_HOST_PROCESSORS", "0", "a whole number from 1 to 1048576"),
            ("RMA_EAGER_BYTES", "100", "a whole number from 512 to 65536"),
            ("RMA_SIGNAL", "3", "a whole number from 34 to 64"),
            ("RMA_RANK", "first", "a whole number, at least 0"),
            ("RMA_TIMEOUT", "0", "a number of seconds above 0"),
            ("RMA_TIMEOUT", "NaN", "a number of seconds above 0"),
            ("RMA_PROGRESS", "sometimes", "one of auto, none, thread"),
        ] {
            let message = load(&[(name, value)]).unwrap_err().to_string();
            assert!(message.contains(&format!("{name}={value} (environment)")), "{message}");
            assert!(message.contains(accepted), "{message}");
        }
    }

    #[test]
    fn the_file_may_be_wrong() {
        let add = |text| {
            let mut settings = Settings::default();
            settings.add_file(Path::new("f"), text).map(|()| settings.warnings)
        };
        assert!(add("RMA_SLOTS 4").unwrap_err().to_string().starts_with("f:1: "));
        assert!(add("\nRMA_SLOTS = x").unwrap_err().to_string().contains("f:2"));
        assert!(add("RMA_RANK = 3").unwrap()[0].contains("no effect"));
        assert!(add("RMA_SLOTZ = 3").unwrap()[0].contains("f:1"));
        let error = load(&[("RMA_CONFIG", "/nonexistent/rma.conf")]).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/rma.conf"), "{error}");
    }

    #[test]
    fn the_table_is_in_order() {
        for setting in SETTINGS {
            assert!(setting.default.is_empty() || accepts(setting.kind, setting.default), "{}", setting.name);
            assert!(setting.name.starts_with("RMA_") && !setting.help.is_empty(), "{}", setting.name);
            assert_eq!(SETTINGS.iter().filter(|other| other.name == setting.name).count(), 1);
        }
        for name in crate::environment::LAUNCH_VARIABLES {
            assert_eq!(find(name).map(|setting| setting.audience), Some(Audience::Internal), "{name}");
        }
    }
}
