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
    kernel::{device::DeviceProfile, render::render_template},
};

const TEMPLATE: &str = "volcano.yaml.hbs";
pub(crate) const VOLCANO_VALUES: &str = "volcano_values.yaml";
const MAX_NAME: usize = 50;
/// Actions of Volcano's policies that start a lost pod again.
const RESTARTS: [&str; 3] = ["RestartJob", "RestartTask", "RestartPod"];

/// Beginning of the SoC name; resource, devices and annotation of a pod on a server of the chip that mind-cluster's scheduler
/// accepts.
type ChipRequest = (&'static str, &'static str, u32, Option<(&'static str, &'static str)>);

const POLICY: &str = "huawei.com/schedule_policy";
const SUPER_POD_BLOCK: &str = "sp-block";
const SERVER_TYPE: &str = "accelerator-type";
/// A longer beginning comes first. Sources, all Ascend/mind-cluster, commit 22bb3d98: names of resources in
/// component/ascend-common/api/default_name.go; choice of the handler in component/ascend-for-volcano/internal/npu/factory.go,
/// which has none for `huawei.com/npu` without a policy; numbers of A3 in .../ascend910a3/superpod/frame.go; servers of a policy
/// in docs/zh/scheduling/06_api/01_volcano.md (Atlas 350: 950PR, Atlas 850: 950DT).
const CHIP_REQUESTS: [ChipRequest; 6] = [
    ("Ascend950DT", "huawei.com/npu", 8, Some((POLICY, "chip8-node8"))),
    ("Ascend950", "huawei.com/npu", 8, Some((POLICY, "chip1-node8"))),
    ("Ascend910_95", "huawei.com/npu", 8, Some((POLICY, "chip1-node8"))),
    ("Ascend910_93", "huawei.com/Ascend910", 16, Some((SUPER_POD_BLOCK, "16"))),
    ("Ascend910B", "huawei.com/Ascend910", 8, None),
    ("Ascend310P", "huawei.com/Ascend310P", 8, None),
];

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
    /// By default those of the chip.
    device_resource: Option<String>,
    devices: Option<u32>,
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
    let profile = DeviceProfile::load(assets, database.device())?;
    let site = VolcanoValues::parse(assets, &file, &profile, plan.shards.len())?;
    let mut resources = BTreeMap::from([("cpu", json!(site.cpu)), ("memory", json!(site.memory))]);
    resources.insert(site.device_resource.as_deref().unwrap_or_default(), json!(site.devices));
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
    fn parse(
        assets: &AssetFiles,
        file: &AssetFile,
        profile: &DeviceProfile,
        pods: usize,
    ) -> Result<Self, CommandError> {
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
        let mut values: Self = parse_yaml(&file.path, &text)?;
        values.complete(profile);
        values.check(file)?;
        values.check_super_pod(file, pods)?;
        Ok(values)
    }

    /// Adds what the file leaves to the chip. Annotations of the chip are left out where the file selects servers by itself.
    fn complete(&mut self, profile: &DeviceProfile) {
        let soc = profile.first_soc().unwrap_or_default();
        let request = CHIP_REQUESTS.into_iter().find(|(start, ..)| soc.starts_with(start));
        let Some((_, resource, devices, annotation)) = request else { return };
        self.device_resource.get_or_insert_with(|| resource.to_owned());
        self.devices.get_or_insert(devices);
        let is_chosen = [POLICY, SUPER_POD_BLOCK].iter().any(|name| self.annotations.contains_key(*name))
            || self.node_selector.contains_key(SERVER_TYPE);
        if let Some((name, value)) = annotation.filter(|_| !is_chosen) {
            self.annotations.insert(name.to_owned(), value.to_owned());
        }
    }

    /// Checks what the scheduler demands of a job with the annotation `sp-block` (superpod/frame.go of mind-cluster): a job of
    /// one pod has as many devices as the block; pods of a larger job have all devices of a server, and blocks are not divided.
    fn check_super_pod(&self, file: &AssetFile, pods: usize) -> Result<(), YamlError> {
        let Some(block) = self.annotations.get(SUPER_POD_BLOCK) else { return Ok(()) };
        let devices = u64::from(self.devices.unwrap_or_default());
        let server = match self.node_selector.get(SERVER_TYPE).map(String::as_str) {
            Some("module-a3-8-super-pod") => 8,
            _ if self.annotations.get(POLICY).is_some_and(|policy| policy.contains("node8")) => 8,
            _ => 16,
        };
        let size = block.parse::<u64>().unwrap_or_default();
        let (server, is_valid) = match pods {
            1 => (devices, size == devices),
            _ => {
                let is_whole = size > 0 && size.is_multiple_of(server);
                (server, devices == server && is_whole && (devices * pods as u64).is_multiple_of(size))
            }
        };
        if is_valid {
            return Ok(());
        }
        let problem = format!(
            "the scheduler refuses {pods} pods of {devices} devices with the annotation `{SUPER_POD_BLOCK}: {block}`"
        );
        let hint = format!("give `devices: {server}` and the annotation `{SUPER_POD_BLOCK}: \"{server}\"`");
        let path: &[&str] = match file.text.contains(SUPER_POD_BLOCK) {
            true => &["annotations", SUPER_POD_BLOCK],
            false => &["devices"],
        };
        Err(YamlError::at(&file.path, find_value(&file.text, path), &problem, &hint))
    }

    /// Checks what Kubernetes would refuse only after the job was submitted, or what would fail in every pod.
    fn check(&self, file: &AssetFile) -> Result<(), YamlError> {
        let Self { job, image, database, device_resource, devices, on_eviction, volumes, .. } = self;
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
            device_resource.is_some() && devices.is_some(),
            &["devices"],
            "`device_resource` or `devices` is missing, and the chip of the database has no default"
                .to_owned(),
            "give the resource of the device plugin, and the number of devices of one shard",
        )?;
        check(
            *devices != Some(0),
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
