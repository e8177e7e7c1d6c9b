//! Values that all nodes of a sweep must have in common.

use std::collections::BTreeMap;

use super::node_name;

/// Values of a node by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeAgreement(BTreeMap<String, String>);

impl NodeAgreement {
    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_owned(), value.into());
    }

    pub(crate) fn has(&self, name: &str, value: &str) -> bool {
        self.0.get(name).is_some_and(|own| own == value)
    }

    pub(super) const fn from_values(values: BTreeMap<String, String>) -> Self {
        Self(values)
    }

    pub(super) fn values(&self) -> BTreeMap<String, String> {
        self.0.clone()
    }

    /// Describes the values in which another node differs, with both values and both hosts; `None` if all are equal.
    pub(super) fn difference(
        &self,
        host: &str,
        node: usize,
        other: &Self,
        other_host: &str,
    ) -> Option<String> {
        let shown = |value: Option<&String>| match value.map(String::as_str) {
            None | Some("") => "none".to_owned(),
            Some(value) => format!("`{value}`"),
        };
        let mut names: Vec<&String> = self.0.keys().chain(other.0.keys()).collect();
        names.sort();
        names.dedup();
        let differing: Vec<String> = names
            .into_iter()
            .filter(|name| self.0.get(*name) != other.0.get(*name))
            .map(|name| {
                let [own, others] = [self, other].map(|side| shown(side.0.get(name)));
                let [one, two] = [node_name(0, host), node_name(node, other_host)];
                format!("{name}: {own} on {one}, {others} on {two}")
            })
            .collect();
        (!differing.is_empty()).then(|| format!("the nodes differ: {}", differing.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_both_values_and_both_hosts() {
        let mut one = NodeAgreement::default();
        one.set("sizes", "1024, 2048");
        one.set("HCCL variables", "");
        let mut other = one.clone();
        assert_eq!(one.difference("a", 1, &other, "b"), None);
        other.set("HCCL variables", "HCCL_ALGO=ring");
        other.set("torch", "2.9");
        assert_eq!(
            one.difference("a", 1, &other, "b").expect("they differ"),
            "the nodes differ: HCCL variables: none on node 0 (a), `HCCL_ALGO=ring` on node 1 (b); torch: none on node 0 (a), \
             `2.9` on node 1 (b)"
        );
    }
}
