//! Hosts, as lists and files name them.

use std::net::Ipv6Addr;

use crate::cli::RANKS_MAX;

/// Most hosts that a list may name.
const HOSTS_MAX: usize = 65_536;

/// A host of the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Host {
    /// Its name, as the user gave it.
    pub(crate) name: String,
    /// How many ranks it takes, if the user said so.
    pub(crate) slots: Option<u32>,
}

/// Reads a list such as `a:2,b` or `n[1-4,7]:8`.
///
/// # Errors
/// A message that names the part that is wrong, and what would be right.
pub(crate) fn parse_list(text: &str) -> Result<Vec<Host>, String> {
    let mut hosts = Vec::new();
    for part in outer_parts(text)? {
        if let Some(host) = host_of_ipv6(part)? {
            hosts.push(host);
            check_count(hosts.len())?;
            continue;
        }
        let (names, slots) = match part.rsplit_once(':') {
            Some((names, slots)) => (names, Some(parse_slots(slots)?)),
            None => (part, None),
        };
        expand(names, slots, &mut hosts)?;
    }
    Ok(hosts)
}

/// The host that `[fd00::2]`, `[fe80::2%eth0]:4` or `user@[fd00::2]` names.
fn host_of_ipv6(part: &str) -> Result<Option<Host>, String> {
    let is_address = |text: &str| {
        let (address, zone) = text.split_once('%').unwrap_or((text, "eth0"));
        address.parse::<Ipv6Addr>().is_ok() && is_name(zone)
    };
    let (user, place) = part.rsplit_once('@').map_or(("", part), |(user, place)| (user, place));
    if is_address(place) {
        let user = if user.is_empty() { String::new() } else { format!("{user}@") };
        return Err(format!(
            "an address of IPv6 stands in brackets: {user}[{place}], or {user}[{place}]:SLOTS"
        ));
    }
    let parts = place.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let Some((address, behind)) = parts.filter(|(address, _)| is_address(address)) else { return Ok(None) };
    let slots = match behind.strip_prefix(':') {
        Some(slots) => Some(parse_slots(slots)?),
        None if behind.is_empty() => None,
        None => return Err(format!("'{part}' is no host; behind the bracket only :SLOTS may follow")),
    };
    let name = part[..part.len() - place.len()].to_owned() + address;
    if name.len() > address.len() && !is_name(user) {
        return Err(format!("'{user}' is no name of a user; write user@[{address}]"));
    }
    Ok(Some(Host { name, slots }))
}

/// Whether it may be the name of a host or a user: a dash in front would be an option to whoever gets it.
fn is_name(text: &str) -> bool {
    let is_sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    !text.is_empty() && !text.starts_with('-') && text.chars().all(is_sound)
}

/// Reads a file of hosts: on each line a list of hosts and perhaps `slots=N`, which then holds for each of them. What
/// Open MPI's files have besides (`max_slots=N`) is passed over.
///
/// # Errors
/// A message that names the line, what is wrong with it, and what would be right.
pub(crate) fn parse_file(text: &str) -> Result<Vec<Host>, String> {
    let mut hosts = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let more = parse_line(line).map_err(|error| format!("line {number}: {error}"))?;
        hosts.extend(more);
        check_count(hosts.len())?;
    }
    if hosts.is_empty() {
        return Err("there is no host in it; write one on each line, such as 'node1 slots=4'".into());
    }
    Ok(hosts)
}

fn parse_line(line: &str) -> Result<Vec<Host>, String> {
    // Some write `slots = 2`.
    let line = line.split('=').map(str::trim).collect::<Vec<_>>().join("=");
    let mut words = line.split_whitespace();
    let Some(names) = words.next() else { return Ok(Vec::new()) };
    let mut hosts = parse_list(names)?;
    for word in words {
        if let Some(slots) = word.strip_prefix("max_slots=").or_else(|| word.strip_prefix("max-slots=")) {
            parse_slots(slots)?;
            continue;
        }
        let Some(slots) = word.strip_prefix("slots=") else {
            return Err(format!("'{word}' is not understood; after the host only slots=N may follow"));
        };
        let slots = parse_slots(slots)?;
        hosts.iter_mut().for_each(|host| host.slots = Some(slots));
    }
    Ok(hosts)
}

fn parse_slots(text: &str) -> Result<u32, String> {
    let slots = text.parse().ok().filter(|slots| (1..=RANKS_MAX).contains(slots));
    slots.ok_or_else(|| format!("'{text}' is no number of slots; it is a whole number from 1 to {RANKS_MAX}"))
}

/// The parts between commas that are not in brackets.
fn outer_parts(text: &str) -> Result<Vec<&str>, String> {
    let mut is_inside = false;
    let mut is_sound = true;
    let parts: Vec<&str> = text
        .split(|c| {
            is_sound &= !(c == '[' && is_inside || c == ']' && !is_inside);
            is_inside = c == '[' || (is_inside && c != ']');
            c == ',' && !is_inside
        })
        .collect();
    if !is_sound || is_inside {
        return Err(format!("the brackets in '{text}' do not match; write n[1-4,7]"));
    }
    Ok(parts)
}

/// Adds the hosts that `names` means, such as `n[01-04,7]` or `rack[1-2]n[1-8]`.
fn expand(names: &str, slots: Option<u32>, hosts: &mut Vec<Host>) -> Result<(), String> {
    let mut expanded = vec![String::new()];
    let mut rest = names;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, behind) = after.split_once(']').unwrap_or((after, ""));
        let numbers = numbers(inside)?;
        check_count(hosts.len() + expanded.len().saturating_mul(numbers.len()))?;
        let with = |name: &String| {
            numbers.iter().map(|number| format!("{name}{before}{number}")).collect::<Vec<_>>()
        };
        expanded = expanded.iter().flat_map(with).collect();
        rest = behind;
    }
    check_count(hosts.len() + expanded.len())?;
    for name in expanded {
        let name = name + rest;
        let (user, host) = name.split_once('@').map_or((None, &*name), |(user, host)| (Some(user), host));
        if !is_name(host) || user.is_some_and(|user| !is_name(user)) {
            return Err(format!("'{name}' is no name of a host; write a list such as a:2,b or n[1-4,7]"));
        }
        hosts.push(Host { name, slots });
    }
    Ok(())
}

/// The numbers in brackets, with as many digits as the first of each range has.
fn numbers(text: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("'[{text}]' is no list of numbers; write [1-4,7]");
    let mut all = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let is_number =
            |text: &str| (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(first) || !is_number(last) {
            return Err(wrong());
        }
        let width = first.len();
        let (first, last): (usize, usize) =
            (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
        if first > last {
            return Err(wrong());
        }
        check_count(all.len() + (last - first))?;
        all.extend((first..=last).map(|number| format!("{number:0width$}")));
    }
    Ok(all)
}

fn check_count(count: usize) -> Result<(), String> {
    if count > HOSTS_MAX {
        return Err(format!("a job has at most {HOSTS_MAX} hosts"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let text_of = |host: Host| {
            host.slots.map_or_else(|| host.name.clone(), |slots| format!("{}:{slots}", host.name))
        };
        parse_list(text).unwrap().into_iter().map(text_of).collect()
    }

    #[test]
    fn lists() {
        assert_eq!(names("a:2,b"), ["a:2", "b"]);
        assert_eq!(names("n[1-3,07-08]:4,x"), ["n1:4", "n2:4", "n3:4", "n07:4", "n08:4", "x"]);
        assert_eq!(names("r[1-2]n[1-2].z"), ["r1n1.z", "r1n2.z", "r2n1.z", "r2n2.z"]);
        assert_eq!(names("me@a:2,you@n[1-2]"), ["me@a:2", "you@n1", "you@n2"]);
        assert_eq!(names("[fd77::2]:2,[::1],me@[fe80::2%eth0]:3"), ["fd77::2:2", "::1", "me@fe80::2%eth0:3"]);
        for (text, part) in [
            ("", "no name of a host"),
            ("a,,b", "no name of a host"),
            ("-oProxyCommand=x", "no name of a host"),
            ("a;b", "no name of a host"),
            ("@a", "no name of a host"),
            ("-o@a", "no name of a host"),
            ("me@", "no name of a host"),
            ("fd77::2", "[fd77::2]:SLOTS"),
            ("me@fd77::2", "me@[fd77::2]"),
            ("-o@[fd77::2]", "no name of a user"),
            ("@[fd77::2]", "no name of a user"),
            ("[fd77::2]x", "only :SLOTS"),
            ("[fd77::2]:0", "number of slots"),
            ("[fe80::2%-x]", "number of slots"),
            ("a:0", "number of slots"),
            ("a:x", "number of slots"),
            ("n[1-", "do not match"),
            ("n]1[", "do not match"),
            ("n[[1]]", "do not match"),
            ("n[3-1]", "[1-4,7]"),
            ("n[]", "[1-4,7]"),
            ("n[0-99999999]", "at most 65536 hosts"),
            ("n[0-65535]m[0-65535]", "at most 65536 hosts"),
            ("n[99999999999]", "[1-4,7]"),
        ] {
            let error = parse_list(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn files() {
        let hosts = parse_file("# mine\n\na slots=2 # big\nn[1-2]\nb:3\n").unwrap();
        let slots: Vec<_> = hosts.iter().map(|host| (host.name.as_str(), host.slots)).collect();
        assert_eq!(slots, [("a", Some(2)), ("n1", None), ("n2", None), ("b", Some(3))]);
        let hosts = parse_file("a slots = 2 max_slots = 4\nb max-slots=3\n").unwrap();
        assert_eq!(hosts.iter().map(|host| host.slots).collect::<Vec<_>>(), [Some(2), None]);
        assert!(parse_file("a max_slots=x\n").unwrap_err().contains("number of slots"));
        assert!(parse_file("a\nb slot=2\n").unwrap_err().contains("line 2: 'slot=2'"));
        assert!(parse_file("a slots=-1").unwrap_err().contains("line 1"));
        assert!(parse_file("# none\n").unwrap_err().contains("no host in it"));
    }
}
