//! The settings file: finding it and taking its lines apart.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::SettingsError;
use crate::environment::Environment;

/// The settings file that this environment points to and its contents, or `None` when there is none.
///
/// # Errors
/// When the file that `RMA_CONFIG` names does not exist, or the file cannot be read.
pub(super) fn read(environment: &Environment) -> Result<Option<(PathBuf, String)>, SettingsError> {
    let named = environment.get("RMA_CONFIG").map(PathBuf::from);
    let is_named = named.is_some();
    let Some(path) = named.or_else(|| usual_path(environment)) else {
        return Ok(None);
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some((path, text))),
        Err(error) if !is_named && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => {
            let named = if is_named { " (named by RMA_CONFIG)" } else { "" };
            Err(SettingsError { message: format!("settings file {}{named}: {error}", path.display()) })
        }
    }
}

/// The lines of a settings file that say something: the line's number, counted from 1, and its name
/// and value, or `None` when the line is malformed.
pub(super) fn parse(text: &str) -> impl Iterator<Item = (usize, Option<(&str, &str)>)> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, without_comment(line).trim()));
    lines.filter(|(_, line)| !line.is_empty()).map(|(number, line)| {
        let pair = line.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
        (number, pair.filter(|(name, _)| !name.is_empty()))
    })
}

/// `#` begins a comment at the start of a line or after a space, so that a value may contain one.
fn without_comment(line: &str) -> &str {
    let begins = |(at, _): &(usize, &str)| *at == 0 || line[..*at].ends_with(char::is_whitespace);
    line.match_indices('#').find(begins).map_or(line, |(at, _)| &line[..at])
}

fn usual_path(environment: &Environment) -> Option<PathBuf> {
    let folder = match environment.get("XDG_CONFIG_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(environment.get("HOME")?).join(".config"),
    };
    Some(folder.join("rma.conf"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let text = "# all\n\n RMA_A = 1 \nRMA_B=a#b # c\nRMA_C\n= 3\nRMA_D =\n";
        let seen: Vec<_> = parse(text).collect();
        let expected = [
            (3, Some(("RMA_A", "1"))),
            (4, Some(("RMA_B", "a#b"))),
            (5, None),
            (6, None),
            (7, Some(("RMA_D", ""))),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn where_it_is_looked_for() {
        let path = |pairs: &[(&str, &str)]| usual_path(&Environment::from_pairs(pairs.iter().copied()));
        assert_eq!(path(&[]), None);
        assert_eq!(path(&[("HOME", "/h")]), Some("/h/.config/rma.conf".into()));
        assert_eq!(path(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")]), Some("/x/rma.conf".into()));
    }
}
