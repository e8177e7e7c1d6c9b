//! Suggestions for unknown words, and truncation of messages.

use std::cmp::Reverse;

/// Longest word for which similar ones are searched: the time grows with the square of the length.
const MAX_SEARCHED: usize = 100;

/// Returns the most similar word, ignoring case; `None` if a third of its letters or more differ. Among equally similar
/// words, the one with the longest common start is returned.
pub(crate) fn nearest_name<'a>(wrong: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if wrong.len() > MAX_SEARCHED {
        return None;
    }
    let wrong = wrong.to_lowercase();
    words
        .into_iter()
        .filter(|word| word.len().abs_diff(wrong.len()) <= MAX_SEARCHED)
        .map(|word| (strsim::damerau_levenshtein(&wrong, &word.to_lowercase()), word))
        .filter(|(distance, word)| *distance <= (word.len() / 3).max(1))
        .min_by_key(|(distance, word)| {
            let word_in_lower = word.to_lowercase();
            let pairs = wrong.chars().zip(word_in_lower.chars());
            (*distance, Reverse(pairs.take_while(|(one, other)| one == other).count()), *word)
        })
        .map(|(_, word)| word)
}

/// Returns a hint for an unknown word: the most similar known word, or `otherwise`.
pub(crate) fn did_you_mean_or<'a, S: Into<String>>(
    wrong: &str,
    words: impl IntoIterator<Item = &'a str>,
    otherwise: impl FnOnce() -> S,
) -> String {
    let near = nearest_name(wrong, words).map(|near| format!("did you mean `{near}`?"));
    near.unwrap_or_else(|| otherwise().into())
}

/// Returns a hint for an unknown word: the most similar known word, or all of them behind `list`.
pub(crate) fn did_you_mean_one_of<'a, W>(wrong: &str, words: W, list: &str) -> String
where
    W: IntoIterator<Item = &'a str> + Clone,
{
    let all = words.clone();
    did_you_mean_or(wrong, words, || format!("{list} {}", all.into_iter().collect::<Vec<_>>().join(", ")))
}

pub(crate) fn truncate_for_message(text: &str) -> String {
    const MAX_CHARACTERS: usize = 100;
    if text.chars().count() <= MAX_CHARACTERS {
        return text.to_owned();
    }
    text.chars().take(MAX_CHARACTERS - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name_needs_small_distance() {
        let words = ["MatMulV2", "SwiGlu", "Add"];
        assert_eq!(nearest_name("MatMul", words), Some("MatMulV2"));
        assert_eq!(nearest_name("swiglu", words), Some("SwiGlu"));
        assert_eq!(nearest_name("Ad", words), Some("Add"));
        assert_eq!(nearest_name(&"a".repeat(50_000_000), words), None);
        assert_eq!(nearest_name("RmsNorm", words), None);
        assert_eq!(nearest_name("sped", ["seed", "speed"]), Some("speed"));
        assert_eq!(did_you_mean_or("Dda", words, || "there are three".to_owned()), "there are three");
        assert_eq!(truncate_for_message("a + b"), "a + b");
        assert_eq!(truncate_for_message(&"é".repeat(200)), "é".repeat(99) + "…");
        assert_eq!(did_you_mean_or("Adds", words, String::new), "did you mean `Add`?");
    }
}
