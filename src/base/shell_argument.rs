//! Parts of commands that messages show for a shell.

use std::path::Path;

pub(crate) fn quoted_argument(text: &str) -> String {
    let is_plain = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@=,%:".contains(&byte));
    if is_plain { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

pub(crate) fn quoted_path(path: &Path) -> String {
    quoted_argument(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_with_characters_of_the_shell_are_quoted() {
        assert_eq!(quoted_argument("/data/db-1"), "/data/db-1");
        assert_eq!(quoted_argument("my db; rm"), "'my db; rm'");
        assert_eq!(quoted_argument("it's"), r"'it'\''s'");
        assert_eq!(quoted_argument(""), "''");
        assert_eq!(quoted_path(Path::new("my db")), "'my db'");
    }
}
