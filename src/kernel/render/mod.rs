//! Renders what a collection runs: the replay script, its manifest, the script that starts msprof; and the scripts of Slurm.
//!
//! Handlebars runs in strict mode, so that a missing name in a template is an error with its line. Cases travel as data
//! in the manifest; only the catalogue's own words and paths become code.

mod collect;
mod manifest;
mod pinned_environment;
mod replay;
mod slurm;

pub(crate) use collect::{
    CollectScript, GangLaunch, GangRendezvous, collect_script, script_templates, shell_quoted,
};
#[cfg(test)]
pub(crate) use manifest::{ControlCall, ExpectedRecord};
pub(crate) use manifest::{ControlLaunches, GangHost, HostNumbers, RecordedTensor, SentinelLengths};
pub use manifest::{Manifest, ManifestCase};
pub use pinned_environment::PinnedEnvironment;
pub(crate) use pinned_environment::{PINNED_SWITCHES, overridden_variables};
pub(crate) use replay::{ScriptCommunication, call_digest, replay_script, selftest_script};
pub(crate) use slurm::{SlurmJob, SlurmShardScripts, SlurmSweep, slurm_sweep_script};

use std::fmt::Display;

use handlebars::{Handlebars, html_escape, no_escape};
use serde::Serialize;
use serde_json::Value;

use crate::base::{
    assets::AssetFiles,
    command_error::Failure,
    printable::{is_harmful_in_cell, printable},
    shell_argument::quoted_argument,
    suggest::truncate_for_message,
};

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RenderError(pub(crate) String);

impl Failure for RenderError {
    fn hint(&self) -> String {
        "give other names if a value is named; else compare the template, of the folder given with `--assets`, with the built-in one"
            .to_owned()
    }
}

/// Returns the escape of `{{value}}` by the kind of a template: of HTML, a word of a shell, or a part of a text of Python.
/// `{{{value}}}` stays as it is, for lines of the catalogue or with their own quotes.
fn escape_of(template: &str) -> fn(&str) -> String {
    match template.trim_end_matches(".hbs").rsplit('.').next() {
        Some("html") => html_text,
        Some("sh") => quoted_argument,
        Some("py") => |text| text.replace('\\', r"\\").replace('"', "\\\""),
        _ => no_escape,
    }
}

/// Returns a text with a control character, which would end a comment or a line of a script.
fn find_control(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => text.contains(is_harmful_in_cell).then_some(text),
        Value::Array(items) => items.iter().find_map(find_control),
        Value::Object(items) => items.values().find_map(find_control),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Renders a template; values are escaped. A page in HTML is placed in the frame of all pages. Other templates refuse
/// values with control characters.
pub(crate) fn render_template(
    assets: &AssetFiles,
    template: &'static str,
    context: &impl Serialize,
) -> Result<String, RenderError> {
    let is_page = template.ends_with(".html.hbs");
    let mut handlebars = Handlebars::new();
    handlebars.set_strict_mode(true);
    handlebars.register_escape_fn(escape_of(template));
    let failed = |problem: &dyn Display| RenderError(format!("template `{template}`: {problem}"));
    let context = serde_json::to_value(context).map_err(|error| failed(&error))?;
    if let Some(value) = find_control(&context).filter(|_| !is_page) {
        let value = truncate_for_message(&format!("{value:?}"));
        return Err(failed(&format!("the value {value} contains a control character")));
    }
    for (name, file) in [(template, template)].into_iter().chain(is_page.then_some(("page", "page.html.hbs")))
    {
        let text = assets.template(file).map_err(|error| RenderError(error.to_string()))?;
        handlebars.register_template_string(name, text).map_err(|error| failed(&error))?;
    }
    handlebars.render(template, &context).map_err(|error| failed(&error))
}

/// Returns a text for pages and images.
pub(crate) fn html_text(text: &str) -> String {
    html_escape(&printable(text))
}

pub(crate) mod files {
    pub(crate) const REPLAY: &str = "replay.py";
    pub(crate) const MANIFEST: &str = "manifest.json";
    pub(crate) const JOURNAL: &str = "launched.jsonl";

    pub(crate) fn journal(rank: usize) -> String {
        if rank == 0 { JOURNAL.to_owned() } else { format!("launched.{rank}.jsonl") }
    }

    pub(crate) fn host_folder(host: usize) -> String {
        format!("host{host}")
    }

    pub(crate) const COLLECT: &str = "collect.sh";
    pub(crate) const PROFILE: &str = "profile";
    /// Durations of the fastest and the slowest rank of each launch of a gang.
    pub(crate) const RANKS: &str = "ranks.jsonl";
    /// End and software of the collection and its cases as planned, with which it can be assessed again.
    pub(crate) const CONDITIONS: &str = "conditions.json";
    pub(crate) const LOG: &str = "collect.log";
    /// Compressed evidence: all files of the folder but the profiler's binary data.
    pub(crate) const EVIDENCE: &str = "evidence.tar.gz";
    pub(crate) const EXPORT_LOG: &str = "export.log";
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HOSTILE: [&str; 8] = [
        "x\ntouch pwned\n#",
        "x\r#",
        "$(touch pwned)",
        "`touch pwned`",
        "'; touch pwned; '",
        "\"; touch pwned",
        "a b",
        "-x \\",
    ];

    /// Each value of each script is hostile: the shell reads one word, or the script is refused.
    #[test]
    fn values_of_scripts_are_words_in_every_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let template = "# {{value}}\nprintf %s {{value}}\nprintf '<%s>'{{#each list}} {{this}}{{/each}}\n";
        std::fs::create_dir_all(folder.path().join("templates")).expect("created");
        std::fs::write(folder.path().join("templates/collect.sh.hbs"), template).expect("written");
        let assets = AssetFiles::overlaid(folder.path()).expect("assets");
        for value in HOSTILE {
            let rendered =
                render_template(&assets, "collect.sh.hbs", &json!({"value": value, "list": [value, "b"]}));
            if value.chars().any(char::is_control) {
                let problem = rendered.expect_err("a line break").to_string();
                assert!(problem.contains("control character") && !problem.contains('\n'), "{problem}");
                continue;
            }
            let ran = std::process::Command::new("sh")
                .args(["-c", &rendered.expect("rendered")])
                .current_dir(folder.path())
                .output();
            let text = String::from_utf8(ran.expect("sh runs").stdout).expect("text");
            assert_eq!(text, format!("{value}<{value}><b>"));
            let python = escape_of("replay.py.hbs")(value);
            assert_eq!(serde_json::from_str::<String>(&format!("\"{python}\"")).expect("one text"), value);
        }
        assert!(!folder.path().join("pwned").exists());
    }
}
