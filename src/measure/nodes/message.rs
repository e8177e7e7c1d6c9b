//! Messages between the nodes. What another node sends is checked by its form where it enters; its texts are shortened.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{MAX_NODES, NodeError};
use crate::{kernel::is_run_id, measure::collective::sweep_session::SweepPart};

pub(crate) type NodeAgreement = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeHost {
    pub(crate) node: usize,
    pub(crate) name: String,
    /// Number of its ranks, which follow the ranks of the hosts before it.
    pub(crate) ranks: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartOrder {
    pub(crate) run: String,
    pub(crate) collection: u32,
    pub(crate) cases: Vec<String>,
    /// Devices by rank, each by its number on its host.
    pub(crate) devices: Vec<u32>,
    pub(crate) hosts: Vec<NodeHost>,
    pub(crate) place: usize,
    /// Time limit in seconds.
    pub(crate) limit: f64,
    /// Wall time in seconds after which the part is ended in any case.
    pub(crate) cut_off: Option<f64>,
    /// Digest of the manifest and the script that the node must render.
    pub(crate) digest: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PartEnd {
    Done,
    Failed,
    TimedOut,
    Stopped,
    NotStarted,
    /// The host cannot write or archive the evidence of the part.
    EvidenceUnwritable,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartResult {
    pub(crate) collection: u32,
    pub(crate) end: PartEnd,
    /// Last line of the log, or the reason why the script was not started or its evidence is missing.
    pub(crate) message: String,
    /// Archive of the evidence in the receiving node.
    #[serde(skip)]
    pub(crate) archive: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeMessage {
    /// First message of a follower. Its form must not change between versions.
    Hello {
        version: String,
        node: usize,
        nodes: usize,
        host: String,
    },
    /// Answer of node 0: the device profile of its database, by which groups are found.
    Welcome {
        device_profile: String,
    },
    /// What the follower has, by name.
    Agreement(NodeAgreement),
    /// The sender cannot take part, or refuses the other one.
    Refused(NodeError),
    Accepted,
    FurtherCases {
        parts: Vec<SweepPart>,
    },
    Start(Box<PartOrder>),
    Stop {
        collection: u32,
    },
    Ended(PartResult),
    StopRequested,
    End {
        exit: u8,
    },
    Heartbeat,
}

const MAX_NAME: usize = 128;
/// MAX of a text that is printed or stored, in characters.
const MAX_TEXT: usize = 256;
/// MAX of what nodes compare: about 40 values, the longest of which is a list of message sizes.
const MAX_VALUES: usize = 128;
const MAX_CASES: usize = 10_000;
/// MAX of the limits of a part: 10 days.
const MAX_SECONDS: f64 = 864_000.0;

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-+".contains(&byte)
}

fn is_name(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(is_name_byte)
}

/// Replaces what no name of a host has.
pub(super) fn host_name_of(text: &str) -> String {
    let name: String =
        text.bytes().take(MAX_NAME).map(|byte| if is_name_byte(byte) { byte.into() } else { '_' }).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// Cuts a text of another node, and replaces its control characters.
pub(super) fn shorten(text: &str) -> String {
    let mut characters = text.chars().map(|character| if character.is_control() { ' ' } else { character });
    let mut shortened: String = characters.by_ref().take(MAX_TEXT).collect();
    if characters.next().is_some() {
        shortened.push('…');
    }
    shortened
}

impl PartOrder {
    fn is_valid(&self) -> bool {
        let Self { run, cases, devices, hosts, place, limit, cut_off, digest, collection: _ } = self;
        let is_case = |id: &String| id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_host = |host: &NodeHost| {
            is_name(&host.name) && host.node < MAX_NODES && (1..=devices.len()).contains(&host.ranks)
        };
        is_run_id(run)
            && (1..=MAX_CASES).contains(&cases.len())
            && cases.iter().all(is_case)
            && (1..=MAX_NODES).contains(&hosts.len())
            && hosts.iter().all(is_host)
            && hosts.is_sorted_by(|one, next| one.node < next.node)
            && hosts.iter().map(|host| host.ranks).sum::<usize>() == devices.len()
            && *place < hosts.len()
            && *limit > 0.0
            && *limit <= MAX_SECONDS
            && cut_off.is_none_or(|seconds| seconds.abs() <= MAX_SECONDS)
            && digest.len() == 64
            && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

impl NodeMessage {
    /// Returns the message with shortened texts, or `None` if a value has not the form of its field.
    pub(super) fn checked(self) -> Option<Self> {
        let is_valid = match &self {
            Self::Hello { version, node, nodes, host } => {
                is_name(version) && is_name(host) && *node < MAX_NODES && *nodes <= MAX_NODES
            }
            // Users name profiles of their own.
            Self::Welcome { device_profile: name } => {
                name.len() <= MAX_NAME && !name.contains(|c: char| c.is_control() || c == '/')
            }
            Self::Agreement(values) => {
                values.len() <= MAX_VALUES && values.keys().all(|name| name.len() <= MAX_NAME)
            }
            Self::FurtherCases { parts } => {
                let lengths = |part: &SweepPart| {
                    [part.kinds.len(), part.dtypes.len(), part.sizes.len(), part.groups.len()]
                };
                let count = |part| lengths(part).into_iter().fold(1, usize::saturating_mul);
                parts.iter().map(count).fold(0, usize::saturating_add) <= MAX_CASES
            }
            Self::Start(order) => order.is_valid(),
            Self::Refused(_)
            | Self::Ended(_)
            | Self::Accepted
            | Self::Stop { .. }
            | Self::StopRequested
            | Self::End { .. }
            | Self::Heartbeat => true,
        };
        is_valid.then(|| match self {
            Self::Refused(NodeError { message, hint, is_of_host }) => {
                Self::Refused(NodeError { message: shorten(&message), hint: shorten(&hint), is_of_host })
            }
            Self::Ended(result) => Self::Ended(PartResult { message: shorten(&result.message), ..result }),
            message => message,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn messages() -> Vec<Value> {
        let order = json!({
            "run": "rehearsal-20260101-000000-00001", "collection": 1, "cases": ["00000000000000aa", "00000000000000bb"],
            "devices": [0, 1, 0], "place": 1, "limit": 60.0, "cut_off": 90.5, "digest": "ab".repeat(32),
            "hosts": [{"node": 0, "name": "host-0", "ranks": 2}, {"node": 1, "name": "host-1", "ranks": 1}],
        });
        let part = json!({"kinds": ["all_reduce"], "dtypes": ["bfloat16"], "sizes": [1024], "groups": []});
        let texts = ["accepted", "stop_requested", "heartbeat"].map(|text| json!(text));
        let others = [
            json!({"hello": {"version": "0.1.0", "node": 1, "nodes": 2, "host": "atlas-07.lab"}}),
            json!({"welcome": {"device_profile": "ATLAS_800_A3_752T_128G_DIE"}}),
            json!({"agreement": {"sizes": "1024, 2048"}}),
            json!({"refused": {"message": "no", "hint": "do"}}),
            json!({"further_cases": {"parts": [part]}}),
            json!({"start": order}),
            json!({"stop": {"collection": 1}}),
            json!({"ended": {"collection": 1, "end": "done", "message": "done"}}),
            json!({"end": {"exit": 0}}),
        ];
        texts.into_iter().chain(others).collect()
    }

    fn leaves(value: &mut Value) -> Vec<&mut Value> {
        match value {
            Value::Array(items) => items.iter_mut().flat_map(leaves).collect(),
            Value::Object(items) => items.values_mut().flat_map(leaves).collect(),
            leaf => vec![leaf],
        }
    }

    fn texts(value: &Value) -> Vec<&str> {
        match value {
            Value::String(text) => vec![text],
            Value::Array(items) => items.iter().flat_map(texts).collect(),
            Value::Object(items) => items.values().flat_map(texts).collect(),
            _ => Vec::new(),
        }
    }

    fn hostile() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            Just("x\ntouch pwned\n#".to_owned()),
            Just("../../x".to_owned()),
            Just("$(reboot)".to_owned()),
            Just("`x`".to_owned()),
            Just("\u{1b}[2J".to_owned()),
            Just("-x; y".to_owned()),
            Just("\u{202e}x".to_owned()),
            Just(String::new()),
            Just("x".repeat(100_000)),
            ".*",
        ];
        let number = prop_oneof![
            any::<f64>().prop_map(|number| json!(number)),
            any::<u64>().prop_map(|number| json!(number)),
            any::<i64>().prop_map(|number| json!(number)),
            Just(json!(1e308)),
            Just(json!(-1.0)),
            Just(json!(u64::MAX)),
            Just(json!(4097)),
        ];
        let other = Just(json!([null, {}, []]));
        prop_oneof![text.prop_map(|text| json!(text)), number, other]
    }

    #[test]
    fn messages_of_npubench_pass_the_check() {
        for message in messages() {
            let parsed: NodeMessage = serde_json::from_value(message.clone()).expect("a message");
            assert!(parsed.checked().is_some(), "{message}");
        }
    }

    proptest! {
        /// A hostile value in any field of any message: refused, or harmless in names, scripts, and as a limit.
        #[test]
        fn hostile_values_do_not_pass(message in 0..12_usize, leaf in any::<prop::sample::Index>(), value in hostile()) {
            let mut message = messages().remove(message);
            let mut found = leaves(&mut message);
            let place = leaf.index(found.len());
            *found[place] = value;
            let Ok(parsed) = serde_json::from_value::<NodeMessage>(message) else { return Ok(()) };
            let Some(checked) = parsed.checked() else { return Ok(()) };
            if !matches!(checked, NodeMessage::Agreement(_) | NodeMessage::FurtherCases { .. }) {
                let shown = serde_json::to_value(&checked).expect("JSON");
                let is_text = matches!(checked, NodeMessage::Refused(_) | NodeMessage::Ended(_) | NodeMessage::Welcome { .. });
                for text in texts(&shown) {
                    prop_assert!(!text.chars().any(char::is_control) && text.chars().count() <= MAX_TEXT + 1, "{text:?}");
                    prop_assert!(is_text || text.bytes().all(is_name_byte) || text == "stop_requested", "{text:?}");
                }
            }
            if let NodeMessage::Start(order) = checked {
                prop_assert!(order.limit > 0.0 && order.limit <= MAX_SECONDS && order.cases.len() == 2);
                prop_assert_eq!(order.hosts.iter().map(|host| host.ranks).sum::<usize>(), 3);
            }
        }
    }
}
