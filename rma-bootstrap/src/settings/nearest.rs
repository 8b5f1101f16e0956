//! What a misspelt name was probably meant to be.

/// The candidate that is spelt most like `name`, if any is close enough to be meant: at most a third
/// of the name differs.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance_max = name.chars().count() / 3;
    let measured = candidates.into_iter().map(|candidate| (distance(name, candidate), candidate));
    measured.filter(|(distance, _)| *distance <= distance_max).min().map(|(_, candidate)| candidate)
}

/// Number of letters to insert, delete, replace or swap with their neighbour to make `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_previous = vec![0; b.len() + 1];
    let mut previous: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut current = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = previous[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            current[j] = replaced.min(previous[j] + 1).min(current[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                current[j] = current[j].min(before_previous[j - 2] + 1);
            }
        }
        before_previous = std::mem::replace(&mut previous, current);
    }
    previous[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "abc", 0),
            ("abc", "acb", 1),
            ("kitten", "sitting", 3),
            ("é", "e", 1),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn only_what_is_near() {
        let names = ["RMA_SLOTS", "RMA_PEERS", "RMA_PROVIDER"];
        assert_eq!(nearest("RMA_SLOT", names), Some("RMA_SLOTS"));
        assert_eq!(nearest("RMA_PROVDIER", names), Some("RMA_PROVIDER"));
        assert_eq!(nearest("RMA_ZZZZZZ", names), None);
        assert_eq!(nearest("", names), None);
    }
}
