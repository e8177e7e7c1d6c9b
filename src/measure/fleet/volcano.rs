//! Job manifest of Volcano for the shards of a plan: one pod for each shard.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ShardPlan;
use crate::{
    base::{
        assets::{AssetFile, AssetFiles},
        command_error::CommandError,
        shell_argument::quoted_argument,
        yaml::{YamlError, find_value, parse as parse_yaml},
    },
    database::Database,
    kernel::render::render_template,
};

const TEMPLATE: &str = "volcano.yaml.hbs";
pub(crate) const VOLCANO_VALUES: &str = "volcano_values.yaml";
const MAX_NAME: usize = 50;
/// Actions of Volcano's policies that start a lost pod again.
const RESTARTS: [&str; 3] = ["RestartJob", "RestartTask", "RestartPod"];

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct VolcanoValues {
    job: String,
    namespace: String,
    queue: String,
    image: String,
    image_pull_policy: String,
    image_pull_secrets: Vec<String>,
    /// Folder of the divided database in the container.
    database: String,
    volumes: Vec<VolcanoVolume>,
    device_resource: String,
    devices: u32,
    cpu: String,
    memory: String,
    node_selector: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    tolerations: Vec<Value>,
    host_network: bool,
    on_eviction: String,
    max_retry: u32,
    grace_seconds: u32,
    run_options: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct VolcanoVolume {
    name: String,
    mount_path: String,
    /// Source of the volume in the keys of Kubernetes.
    source: BTreeMap<String, Value>,
}

pub(crate) fn volcano_manifest(
    database: &Database,
    assets: &AssetFiles,
    values: &Path,
) -> Result<String, CommandError> {
    let plan = ShardPlan::load_existing(database)?;
    let file = AssetFile::read(values).map_err(YamlError::from)?;
    let site = VolcanoValues::parse(assets, &file)?;
    let mut resources = BTreeMap::from([("cpu", json!(site.cpu)), ("memory", json!(site.memory))]);
    resources.insert(&site.device_resource, json!(site.devices));
    let mounts =
        site.volumes.iter().map(|volume| json!({"name": volume.name, "mountPath": volume.mount_path}));
    let sources = site.volumes.iter().map(|volume| {
        let mut source = json!(volume.source);
        source["name"] = json!(volume.name);
        source
    });
    let secrets = site.image_pull_secrets.iter().map(|name| json!({"name": name}));
    let mut context = json!(site);
    context["image_pull_secrets"] = secrets.collect();
    context["resources"] = json!(resources);
    context["volume_mounts"] = mounts.collect();
    context["volumes"] = sources.collect();
    for (key, value) in context.as_object_mut().into_iter().flatten() {
        if !value.is_boolean() && key != "database" && key != "on_eviction" {
            // A value is JSON, which is YAML: quoted texts, lists and mappings on one line.
            *value = json!(value.to_string());
        }
    }
    let options = site.run_options.iter().map(|option| format!(" {}", quoted_argument(option)));
    let (folder, host) = (quoted_argument(&site.database), database.kind().host_option());
    context["run"] = json!(format!("npubench run --db {folder}{host}{}", options.collect::<String>()));
    context["plan"] = json!(plan.id());
    context["count"] = json!(plan.shards.len());
    Ok(render_template(assets, TEMPLATE, &context)?)
}

impl VolcanoValues {
    fn parse(assets: &AssetFiles, file: &AssetFile) -> Result<Self, CommandError> {
        let defaults: BTreeMap<String, Value> =
            parse_yaml(Path::new(VOLCANO_VALUES), &assets.template(VOLCANO_VALUES)?)?;
        // Defaults are appended as lines of their own.
        let is_content = |line: &&str| !line.trim().is_empty() && !line.starts_with('#') && *line != "---";
        let first = file.text.lines().find(is_content).unwrap_or_default();
        if first.starts_with(['{', ' ', '\t']) || file.text.lines().any(|line| line.trim_end() == "...") {
            let hint = "write a line for each key, as `npubench volcano values` prints them";
            let problem = "has keys that do not start at the first column, or an end mark";
            return Err(YamlError::of_file(&file.path, problem, hint).into());
        }
        let given: Option<BTreeMap<String, Value>> = parse_yaml(&file.path, &file.text)?;
        let given = given.unwrap_or_default();
        // Behind the given keys, so that errors have the line of the file.
        let mut text = file.text.clone();
        for (key, value) in defaults.iter().filter(|(key, _)| !given.contains_key(*key)) {
            let _ = write!(text, "\n{key}: {value}");
        }
        let values: Self = parse_yaml(&file.path, &text)?;
        values.check(file)?;
        Ok(values)
    }

    /// Checks what Kubernetes would refuse only after the job was submitted, or what would fail in every pod.
    fn check(&self, file: &AssetFile) -> Result<(), YamlError> {
        let Self { job, image, database, devices, on_eviction, volumes, .. } = self;
        let check = |is_valid: bool, path: &[&str], problem: String, hint: &str| match is_valid {
            true => Ok(()),
            false => Err(YamlError::at(&file.path, find_value(&file.text, path), &problem, hint)),
        };
        check(
            is_dns_label(job) && job.len() <= MAX_NAME,
            &["job"],
            format!("`job: {job}` is no name of a job"),
            "use up to 50 lower-case letters, digits and `-`, a letter first",
        )?;
        check(
            !image.is_empty(),
            &["image"],
            "`image` is missing".to_owned(),
            "give the image with npubench and CANN",
        )?;
        check(
            database.starts_with('/'),
            &["database"],
            format!("`database: {database}` is no absolute path"),
            "give the folder of the database in the container, such as /data/a3",
        )?;
        check(
            *devices > 0,
            &["devices"],
            "`devices` is 0".to_owned(),
            "give the number of devices of one shard",
        )?;
        check(
            RESTARTS.contains(&on_eviction.as_str()),
            &["on_eviction"],
            format!("`on_eviction: {on_eviction}` starts no lost pod again"),
            "expected RestartJob, RestartTask or RestartPod",
        )?;
        for (place, VolcanoVolume { name, mount_path, .. }) in volumes.iter().enumerate() {
            let place = place.to_string();
            check(
                is_dns_label(name),
                &["volumes", &place, "name"],
                format!("`name: {name}` is no name of a volume"),
                "use lower-case letters, digits and `-`, a letter first",
            )?;
            check(
                mount_path.starts_with('/'),
                &["volumes", &place, "mount_path"],
                format!("`mount_path: {mount_path}` is no absolute path"),
                "give a path in the container",
            )?;
        }
        check(
            volumes.iter().any(|volume| Path::new(database).starts_with(&volume.mount_path)),
            &["database"],
            format!("no volume contains `database: {database}`"),
            "add a volume that all nodes share to `volumes`; results in a container alone are lost with it",
        )
    }
}

/// Returns true for a label of RFC 1123 that starts with a letter.
fn is_dns_label(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}
