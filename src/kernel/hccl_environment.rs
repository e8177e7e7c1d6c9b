//! Variables of HCCL on which the durations of collectives depend, as a key of their rows.

use std::collections::BTreeMap;

/// Variables of HCCL that change the algorithm or its buffers, by the vendor's reference of environment variables.
pub(crate) const HCCL_VARIABLES: [&str; 10] = [
    "HCCL_ALGO",
    "HCCL_BUFFSIZE",
    "HCCL_DETERMINISTIC",
    "HCCL_INTER_HCCS_DISABLE",
    "HCCL_INTRA_PCIE_ENABLE",
    "HCCL_INTRA_ROCE_ENABLE",
    "HCCL_OP_EXPANSION_MODE",
    "HCCL_RDMA_PCIE_DIRECT_POST_NOSTRICT",
    "HCCL_RDMA_QPS_PER_CONNECTION",
    "HCCL_MULTI_QP_THRESHOLD",
];
/// Buffer size that HCCL uses without the variable, in MB.
const DEFAULT_BUFFER: (&str, &str) = ("HCCL_BUFFSIZE", "200");

/// Returns the key of an environment: the set variables among [`HCCL_VARIABLES`] in the order of their names, as `NAME=value`
/// with `;` between them, without the default size of buffers.
pub(crate) fn hccl_environment(variables: &BTreeMap<String, String>) -> String {
    let counts = |(name, value): &(&String, &String)| {
        HCCL_VARIABLES.contains(&name.as_str())
            && !value.trim().is_empty()
            && (name.as_str(), value.trim()) != DEFAULT_BUFFER
    };
    let set = variables.iter().filter(counts).map(|(name, value)| format!("{name}={}", value.trim()));
    set.collect::<Vec<_>>().join(";")
}

/// Returns the variables of a key that [`hccl_environment`] made. Parts without the name of a variable belong to the value before
/// them.
pub(crate) fn hccl_variables(environment: &str) -> BTreeMap<String, String> {
    let mut variables: BTreeMap<String, String> = BTreeMap::new();
    let mut last: Option<String> = None;
    for part in environment.split(';') {
        match part.split_once('=').filter(|(name, _)| HCCL_VARIABLES.contains(name)) {
            Some((name, value)) => {
                variables.insert(name.to_owned(), value.to_owned());
                last = Some(name.to_owned());
            }
            // `;` is also part of values, such as `level0:ring;level1:H-D_R`.
            None => {
                if let Some(value) = last.as_ref().and_then(|name| variables.get_mut(name)) {
                    value.push(';');
                    value.push_str(part);
                }
            }
        }
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_an_environment_are_read_back() {
        let all = [
            ("HCCL_ALGO", "level0:ring;level1:H-D_R"),
            ("HCCL_BUFFSIZE", "200"),
            ("HCCL_CONNECT_TIMEOUT", "600"),
            ("HCCL_OP_EXPANSION_MODE", "AIV"),
        ];
        let all: BTreeMap<String, String> =
            all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let key = hccl_environment(&all);
        assert_eq!(key, "HCCL_ALGO=level0:ring;level1:H-D_R;HCCL_OP_EXPANSION_MODE=AIV");
        let read = hccl_variables(&key);
        assert_eq!(read["HCCL_ALGO"], "level0:ring;level1:H-D_R");
        assert_eq!(read.len(), 2);
        assert!(hccl_variables("").is_empty());
    }
}
