//! The shell script that starts msprof on a collection. A person can run it again by hand.

use std::net::IpAddr;

use super::{PinnedEnvironment, RenderError, files, render_template, replay::REPLAY_TEMPLATE};
use crate::{
    base::assets::{AssetError, AssetFiles},
    kernel::ProfilerSettings,
};

#[derive(Clone, Debug)]
pub(crate) struct CollectScript<'a> {
    pub(crate) run: &'a str,
    pub(crate) collection: u32,
    pub(crate) python: &'a str,
    pub(crate) environment: &'a [(String, String)],
    pub(crate) pinned: &'a PinnedEnvironment,
    pub(crate) profiler: &'a ProfilerSettings,
    pub(crate) gang: Option<GangLaunch<'a>>,
    pub(crate) is_gloo: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct GangLaunch<'a> {
    pub(crate) ranks: usize,
    pub(crate) rendezvous: Option<GangRendezvous<'a>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct GangRendezvous<'a> {
    pub(crate) hosts: usize,
    pub(crate) host: usize,
    pub(crate) address: &'a str,
    pub(crate) port: u16,
}

impl GangLaunch<'_> {
    fn options(&self) -> Vec<String> {
        let local =
            || ["--standalone", "--nnodes", "1", "--local-addr", "127.0.0.1"].map(str::to_owned).to_vec();
        let mut options =
            self.rendezvous.map_or_else(local, |GangRendezvous { hosts, host, address, port }| {
                let values = [
                    ("--nnodes", hosts.to_string()),
                    ("--node-rank", host.to_string()),
                    ("--master-addr", address.to_owned()),
                    ("--master-port", port.to_string()),
                ];
                values.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
            });
        options.extend(["--nproc_per_node".to_owned(), self.ranks.to_string()]);
        options
    }

    fn is_local(&self) -> bool {
        self.rendezvous.is_none_or(|rendezvous| {
            let address = rendezvous.address;
            address == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        })
    }
}

const TEMPLATE: &str = "collect.sh.hbs";

pub(crate) fn script_templates(assets: &AssetFiles) -> Result<String, AssetError> {
    let [collect, replay] = [TEMPLATE, REPLAY_TEMPLATE].map(|name| assets.template(name));
    Ok(collect? + &replay?)
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
        "python": script.python,
        "exports": exports.collect::<Vec<_>>(),
        "profile": files::PROFILE,
        "profiler": script.profiler.options(),
        "replay": files::REPLAY,
        "manifest": files::MANIFEST,
        "torchrun": script.gang.map(|gang| gang.options()),
        "is_local": script.gang.is_none_or(|gang| gang.is_local()),
        "is_gloo": script.is_gloo,
    });
    render_template(assets, TEMPLATE, &context)
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
