//! Pages in a real browser: what a script finds in them at a width of the screen, and what they write to the console.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::prelude::*;
use crate::requirements::skip;

/// Names of Chromium on the systems of developers and of CI.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// What a script has found in a page.
pub(crate) struct ShownPage {
    /// Value of the script.
    pub(crate) value: Value,
    /// Errors and warnings of the console.
    pub(crate) console: Vec<String>,
}

/// Returns the path of a browser, or skips the test.
#[track_caller]
pub(crate) fn browser() -> Option<PathBuf> {
    let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    let found = BROWSERS
        .iter()
        .find_map(|name| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file()));
    if found.is_none() {
        skip("no Chromium in PATH");
    }
    found
}

/// Opens a page of the context in a frame of this width in pixels, and returns the value of `script`, an expression in which
/// `page` is its document, or a promise. The browser has no network.
pub(crate) fn show(browser: &Path, context: &Context, page: &str, width: u32, script: &str) -> ShownPage {
    // A frame has any width; windows of Chromium have a least one. An error of the script is its value.
    let probe = format!(
        r#"<!DOCTYPE html><meta charset="utf-8"><pre id="value"></pre><iframe id="frame" width="{width}" height="900"></iframe>
<script>
const frame = document.getElementById("frame");
frame.onload = async () => {{
  let value;
  try {{ const page = frame.contentDocument; value = await {script}; }} catch (error) {{ value = String(error); }}
  document.getElementById("value").textContent = JSON.stringify(value);
}};
frame.src = "{page}";
</script>"#
    );
    let probed = context.write("probe.html", &probe);
    let profile = context.path("browser");
    fs::create_dir_all(&profile).expect("created");
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-extensions", "--no-first-run"])
        .args(["--allow-file-access-from-files", "--host-resolver-rules=MAP * ~NOTFOUND"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", probed.display()))
        .output()
        .expect("the browser starts");
    let (dom, log) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned());
    let value = dom.split("<pre id=\"value\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let value = value.unwrap_or_default().replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let value = serde_json::from_str(&value).unwrap_or_else(|_| panic!("no value: {dom}\n{log}"));
    let console = log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    ShownPage { value, console }
}
