//! The shell script that starts msprof on a collection. A person can run it again by hand.

use super::{PinnedEnvironment, RenderError, files, replay::render};
use crate::{config::AssetFiles, domain::ProfilerSettings};

/// Values of the script.
#[derive(Clone, Debug)]
pub(crate) struct CollectScript<'a> {
    pub(crate) run: &'a str,
    pub(crate) collection: u32,
    pub(crate) python: &'a str,
    /// Environment variables; `PATH` is put in front of the present one.
    pub(crate) environment: &'a [(String, String)],
    /// Variables with fixed values, which follow those of `environment`.
    pub(crate) pinned: &'a PinnedEnvironment,
    pub(crate) profiler: &'a ProfilerSettings,
    /// Number of processes that torchrun starts; `None` for a script without torchrun.
    pub(crate) ranks: Option<usize>,
    /// True if the processes communicate on the host, without msprof.
    pub(crate) is_gloo: bool,
}

pub(crate) fn collect_script(assets: &AssetFiles, script: &CollectScript<'_>) -> Result<String, RenderError> {
    let exports = script.environment.iter().map(|(name, value)| match name.as_str() {
        "PATH" => format!("export PATH={}:\"$PATH\"", shell_quoted(value)),
        name => format!("export {name}={}", shell_quoted(value)),
    });
    let exports = exports.chain(script.pinned.shell_lines());
    let context = serde_json::json!({
        "run": script.run,
        "collection": script.collection,
        "python": shell_quoted(script.python),
        "exports": exports.collect::<Vec<_>>(),
        "profile": files::PROFILE,
        "profiler": script.profiler.options().join(" "),
        "replay": files::REPLAY,
        "manifest": files::MANIFEST,
        "ranks": script.ranks,
        "is_gloo": script.is_gloo,
    });
    render(assets, "collect.sh.hbs", &context)
}

pub(crate) fn shell_quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_shell_as_they_are() {
        for word in ["plain", "with blank", "it's", "$(reboot)", "`x`", "a\"b", "\\"] {
            let output = std::process::Command::new("sh")
                .arg("-c")
                .arg(format!("printf %s {}", shell_quoted(word)))
                .output();
            assert_eq!(output.expect("sh runs").stdout, word.as_bytes());
        }
    }
}
