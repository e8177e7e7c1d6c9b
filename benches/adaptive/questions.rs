//! Questions of a surface, and the cases that may be measured for them.

use std::collections::BTreeMap;

use npubench::{answer::adaptive::AdaptiveCandidate, base::stats::SplitMix64};

use super::surfaces::{Shape, Surface, real};

/// Number of tokens from which on frameworks pad to multiples of 16.
const PADDED_FROM: u64 = 128;

/// Returns questions of random tokens, uniform in their logarithm, at the widths of the ladder. Every second one of
/// many tokens is a multiple of 16.
pub(crate) fn random_questions(surface: &Surface, count: usize) -> Vec<Shape> {
    let mut random = SplitMix64::new(99);
    let most = surface.tokens.last().copied().unwrap_or(1);
    (0..count)
        .map(|number| {
            let share = random.next_below(1 << 30) as f64 / f64::from(1 << 30);
            let tokens = (real(most).ln() * share).exp().floor() as u64;
            let is_padded = number % 2 == 1 && tokens >= PADDED_FROM;
            let tokens = if is_padded { tokens.next_multiple_of(16) } else { tokens };
            let widths = surface.widths[random.next_below(surface.widths.len() as u64) as usize];
            (tokens.clamp(1, most), widths)
        })
        .collect()
}

/// Returns numbers of tokens that may be measured: steps of a twelfth of an octave, both as they are and as multiples
/// of 16.
fn candidate_tokens(surface: &Surface) -> Vec<u64> {
    let most = surface.tokens.last().copied().unwrap_or(1);
    let mut found = vec![most];
    let mut at = 1.0_f64;
    while at < real(most) {
        let tokens = at.round() as u64;
        found.extend([tokens, tokens.next_multiple_of(16)]);
        at *= 2.0_f64.powf(1.0 / 12.0);
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns the shapes that may be measured, and the candidates of an adaptive grid in the same order. A candidate
/// stands for the questions around it.
pub(crate) fn candidates_of(surface: &Surface) -> (Vec<Shape>, Vec<AdaptiveCandidate>) {
    let tokens = candidate_tokens(surface);
    let log = |place: usize| real(tokens[place]).ln();
    let mut known: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    let (mut shapes, mut candidates): (Vec<Shape>, Vec<AdaptiveCandidate>) = Default::default();
    for widths in &surface.widths {
        for place in 0..tokens.len() {
            let (before, after) = (place.saturating_sub(1), (place + 1).min(tokens.len() - 1));
            let weight = (log(after) - log(before)) / 2.0;
            // Shapes with as many elements are one question, but for single tokens, whose first dimension lookups drop.
            let (line, size) = match surface.is_by_elements {
                true => (u64::from(tokens[place] == 1), tokens[place] * widths.0),
                false => (widths.0 << 32 | widths.1, tokens[place]),
            };
            if let Some(&at) = known.get(&(line, size)) {
                candidates[at].weight += weight;
                continue;
            }
            known.insert((line, size), candidates.len());
            shapes.push((tokens[place], *widths));
            let query = surface.query(tokens[place], *widths);
            candidates.push(AdaptiveCandidate { query, line, weight, position: real(size).ln() });
        }
    }
    (shapes, candidates)
}
