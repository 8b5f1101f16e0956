//! What a completion's tag says: two bits of kind, 28 of generation, 32 of index.

use crate::ids::Tag;

/// What completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TagKind {
    /// A put that only its target element counts.
    CountedPut,
    /// A get that only its target element counts.
    CountedGet,
    /// A native piece of the operation element.
    Operation,
    /// A provider flush of the target element.
    Flush,
}

impl TagKind {
    #[inline]
    pub(crate) fn tag(self, generation: u32, index: u32) -> Tag {
        Tag((self as u64) << 62 | u64::from(generation & (u32::MAX >> 4)) << 32 | u64::from(index))
    }

    /// Kind, generation and index.
    #[inline]
    pub(crate) fn parse(tag: Tag) -> (Self, u32, u32) {
        let kind = match tag.0 >> 62 {
            0 => Self::CountedPut,
            1 => Self::CountedGet,
            2 => Self::Operation,
            _ => Self::Flush,
        };
        (kind, (tag.0 >> 32) as u32 & (u32::MAX >> 4), tag.0 as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_says_what_was_put_into_it() {
        for kind in [TagKind::CountedPut, TagKind::CountedGet, TagKind::Operation, TagKind::Flush] {
            assert_eq!(TagKind::parse(kind.tag(u32::MAX >> 4, 7)), (kind, u32::MAX >> 4, 7));
        }
    }
}
