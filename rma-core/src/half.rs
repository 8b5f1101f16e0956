//! 16-bit floating point: conversion to `f32`, which is exact, and back, which rounds to nearest, ties to
//! even. Rust has no stable type for either format, so elements of them are the bits in a `u16`.

/// The value of an IEEE 754 binary16.
pub const fn f16_to_f32(bits: u16) -> f32 {
    let sign = (bits as u32 & 0x8000) << 16;
    let (exponent, fraction) = ((bits as u32 >> 10) & 0x1f, bits as u32 & 0x3ff);
    f32::from_bits(match (exponent, fraction) {
        (0, 0) => sign,
        (0, _) => {
            // Subnormal: `fraction` times 2^-24. Its highest bit becomes the implicit one.
            let shift = fraction.leading_zeros() - 21;
            sign | (113 - shift) << 23 | (fraction << shift & 0x3ff) << 13
        }
        (0x1f, _) => sign | 0x7f80_0000 | fraction << 13,
        _ => sign | (exponent + 112) << 23 | fraction << 13,
    })
}

/// The binary16 nearest to a value; of two equally near the even one. What is too large becomes infinite,
/// and a NaN keeps the upper bits of its payload and becomes quiet.
pub const fn f16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00 | (magnitude >> 13) as u16 & 0x3ff;
    }
    // 65520, halfway between the largest number and the next power of two, rounds to that: infinity.
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    if magnitude >= 0x3880_0000 {
        // A carry out of the fraction goes into the exponent, as it should.
        return sign | (round(magnitude, 13) - (112 << 10)) as u16;
    }
    // Subnormal, or zero: the fraction with its implicit bit, in units of 2^-24.
    let exponent = magnitude >> 23;
    if exponent < 102 {
        return sign;
    }
    sign | round(magnitude & 0x7f_ffff | 0x80_0000, 126 - exponent) as u16
}

/// The value of a bfloat16.
pub const fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// The bfloat16 nearest to a value; of two equally near the even one. NaN as for [`f16_from_f32`].
pub const fn bf16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        return (bits >> 16) as u16 | 0x40;
    }
    round(bits, 16) as u16
}

/// `bits` divided by 2^`shift` (1 to 25), to the nearest whole number, ties to even.
const fn round(bits: u32, shift: u32) -> u32 {
    let (whole, rest, half) = (bits >> shift, bits & ((1 << shift) - 1), 1 << (shift - 1));
    whole + (rest > half || (rest == half && whole & 1 == 1)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a format's bits, by the definition of IEEE 754: `fraction_bits` of fraction and
    /// `exponent_bits` of exponent. Exact in `f64`.
    fn value(bits: u16, exponent_bits: u32, fraction_bits: u32) -> f64 {
        let bias = (1 << (exponent_bits - 1)) - 1;
        let exponent = i32::from(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
        let fraction = f64::from(bits & ((1 << fraction_bits) - 1)) / f64::from(1 << fraction_bits);
        let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
        let power = |exponent: i32| {
            let factor = if exponent < 0 { 0.5 } else { 2.0 };
            (0..exponent.abs()).fold(1.0, |power, _| power * factor)
        };
        match exponent {
            0 => sign * fraction * power(1 - bias),
            _ if exponent == (1 << exponent_bits) - 1 && fraction == 0.0 => sign * f64::INFINITY,
            _ if exponent == (1 << exponent_bits) - 1 => f64::NAN,
            _ => sign * (1.0 + fraction) * power(exponent - bias),
        }
    }

    /// Every value there and back, and every boundary between two neighbours.
    fn exhaustively(to: fn(u16) -> f32, from: fn(f32) -> u16, exponent_bits: u32, fraction_bits: u32) {
        let is_nan = |bits| value(bits, exponent_bits, fraction_bits).is_nan();
        for bits in 0..=u16::MAX {
            let exact = value(bits, exponent_bits, fraction_bits);
            if exact.is_nan() {
                assert!(to(bits).is_nan() && is_nan(from(to(bits))), "{bits:#06x}");
                continue;
            }
            assert_eq!(f64::from(to(bits)).to_bits(), exact.to_bits(), "{bits:#06x}");
            assert_eq!(from(to(bits)), bits);
            let above = value(bits.wrapping_add(1), exponent_bits, fraction_bits);
            if bits & 0x7fff == 0x7fff || !above.is_finite() || bits & 0x8000 != 0 {
                continue;
            }
            let middle = ((exact + above) / 2.0) as f32;
            assert_eq!(from(middle), bits + (bits & 1), "the tie above {bits:#06x}");
            assert_eq!(from(f32::from_bits(middle.to_bits() - 1)), bits, "below the tie above {bits:#06x}");
            assert_eq!(
                from(f32::from_bits(middle.to_bits() + 1)),
                bits + 1,
                "over the tie above {bits:#06x}"
            );
            assert_eq!(from(-middle), 0x8000 | (bits + (bits & 1)));
        }
    }

    #[test]
    fn every_f16_converts_exactly_and_every_tie_goes_to_even() {
        exhaustively(f16_to_f32, f16_from_f32, 5, 10);
        assert_eq!(f16_from_f32(65519.996), 0x7bff);
        assert_eq!(f16_from_f32(65520.0), 0x7c00);
        assert_eq!(f16_from_f32(f32::MAX), 0x7c00);
        assert_eq!(f16_from_f32(-1e-30), 0x8000);
        assert_eq!(f16_from_f32(f32::from_bits(0x3300_0000)), 0, "half of the smallest is a tie");
        assert_eq!(f16_from_f32(f32::from_bits(0x3300_0001)), 1);
    }

    #[test]
    fn every_bf16_converts_exactly_and_every_tie_goes_to_even() {
        exhaustively(bf16_to_f32, bf16_from_f32, 8, 7);
        assert_eq!(bf16_from_f32(f32::MAX), 0x7f80);
        assert_eq!(bf16_from_f32(f32::INFINITY), 0x7f80);
    }
}
