//! Random numbers that are equal on every machine and in every version.

/// Sebastiano Vigna's `splitmix64.c` (public domain; Steele, Lea and Flood, OOPSLA 2014).
///
/// Implemented here because published intervals must not change with a new version of a crate.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to `bound - 1` as the high half of a product (Lemire). Without the rejection step its
    /// bias is below `bound` / 2^64.
    pub fn next_below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a random item; `items` is not empty.
    pub(super) fn choose<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.next_below(items.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_matches_the_published_generator() {
        // Output of splitmix64.c for the seed 1234567.
        let mut random = SplitMix64::new(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(expected.map(|_| random.next_u64()), expected);
    }

    #[test]
    fn numbers_below_a_bound_are_uniform() {
        let mut random = SplitMix64::new(7);
        let mut seen = [0_u32; 6];
        (0..60_000).for_each(|_| seen[random.next_below(6) as usize] += 1);
        // Five standard deviations are 456.
        assert!(seen.iter().all(|count| count.abs_diff(10_000) < 456), "{seen:?}");
    }
}
