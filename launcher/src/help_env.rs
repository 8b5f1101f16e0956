//! The list of settings that `rmarun --help-env` prints.

use std::fmt::Write;

use rma_bootstrap::settings::{Audience, Kind, Settings, Source};

/// The list, with the values that are possible, those that hold now, and where they come from.
pub(crate) fn text(settings: &Settings) -> String {
    let mut text = String::from(
        "Settings. A command-line flag wins over the environment, the environment over the settings file\n\
         (RMA_CONFIG, or rma.conf in $XDG_CONFIG_HOME or ~/.config; lines NAME = value), the file over the default.\n\n",
    );
    let mut list = |audience: Audience| {
        for (setting, value, source) in
            settings.entries().filter(|(setting, ..)| setting.audience == audience)
        {
            let _ = write!(text, "  {:<26} {}", setting.name, setting.help);
            if setting.kind != Kind::Text {
                let _ = write!(text, "; {}", setting.kind);
            }
            match (value, source) {
                (Some(value), Source::Default) => drop(write!(text, " [{value}]")),
                (Some(value), source) => drop(write!(text, " [{value}, from the {source}]")),
                (None, _) => {}
            }
            text.push('\n');
        }
        text.push('\n');
    };
    list(Audience::User);
    list(Audience::Internal);
    text +=
        "The last ones are set by rmarun for each rank. Names that begin with RMA_TEST_ steer the tests.\n";
    text
}
