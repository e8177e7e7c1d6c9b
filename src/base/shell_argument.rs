//! Parts of commands that messages show for a shell.

use std::path::Path;

use crate::kernel::DataKind;

/// Returns a text as an argument of a shell.
pub(crate) fn quoted_argument(text: &str) -> String {
    let is_plain = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@=,%:".contains(&byte));
    if is_plain { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Returns a folder or file as an argument of a shell.
pub(crate) fn quoted_path(path: &Path) -> String {
    quoted_argument(&path.to_string_lossy())
}

/// Returns the option, with a space before it, that a command needs to measure for a database of this kind.
pub(crate) const fn host_option(kind: DataKind) -> &'static str {
    match kind {
        DataKind::Npu => "",
        DataKind::Rehearsal => " --host rehearsal",
    }
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
