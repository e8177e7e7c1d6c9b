//! Versions of other software that npubench was checked with.

use super::DoctorCheck;
use crate::kernel::version_numbers;

/// Rows of the table of README.md, which explains the third cell: software, versions, ways of the check, basis.
const CHECKED_VERSIONS: &str = "\
| CANN | 8.5.0, 9.0.0, 9.0.1, 9.1.0, 9.2.0-beta.1 | source, rehearsed | cann/oam-tools, cann/runtime; the exporter of Ascend/msprof 9ba1ac7 |
| HCCL | 09300b70 (August 2026) | source | hicann/hccl, its reference of variables |
| driver | 23.0.5, 24.1.1, 25.2.0, 25.3.rc1, 26.0.rc1 | rehearsed | tables of npu-smi that users published |
| torch_npu | 2.9.0.post9, 2.12.0.post3, 2.14.0 | schema, source | its wheels; Ascend/pytorch 9e73e708, Ascend/op-plugin 517f2e7 |
| vLLM-Ascend | 0.13.0, 0.14.0rc1, 0.18.0, 0.23.0, 0.25.1rc1, 0.26.0rc1 | schema, source, rehearsed | vllm-project/vllm-ascend to 182b75e; schemas of custom operators of 0.18 to 0.26, servers of all |
| msmodeling | 84fec85 | source, rehearsed | Ascend/msmodeling, its tables of vLLM 0.15 and 0.18 |
| mind-cluster | 22bb3d98 (August 2026) | source | Ascend/mind-cluster, admission of jobs |
";

/// Returns a check for each row, compared with the versions of this host that are known, by the name of the software.
pub(crate) fn check_versions(host: &[(&str, Option<&str>)]) -> Vec<DoctorCheck> {
    let rows = CHECKED_VERSIONS.lines().map(|line| {
        let cells: Vec<&str> = line.trim_matches(['|', ' ']).split(" | ").collect();
        let [software, versions, ways, basis] = cells[..] else { unreachable!("a row has four cells") };
        let own = host.iter().find(|(name, _)| *name == software).and_then(|(_, version)| *version);
        compare(own, versions, &format!("{software} {versions} ({ways}; {basis})"))
    });
    rows.collect()
}

/// Versions with the same first two numbers count as checked.
fn compare(own: Option<&str>, versions: &str, found: &str) -> DoctorCheck {
    const NAME: &str = "checked versions";
    let release = |text: &str| version_numbers(text).map(|[major, minor, _]| (major, minor));
    let Some(own) = own else {
        return DoctorCheck::passed(NAME, format!("{found}; the version of this host is not known"));
    };
    if release(own).is_some() && versions.split(", ").any(|checked| release(checked) == release(own)) {
        return DoctorCheck::passed(NAME, format!("{found}; this host has {own}"));
    }
    let fix = "run `npubench selftest`: it tests whether this version behaves as the checked ones";
    DoctorCheck::warning(NAME, format!("{found}; this host has {own}, which is not among them"), fix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::device::CheckStatus;

    #[test]
    fn the_readme_has_the_same_table() {
        let table = format!("| software | versions | how | basis |\n|---|---|---|---|\n{CHECKED_VERSIONS}\n");
        assert!(include_str!("../../../README.md").contains(&table), "{table}");
        for row in CHECKED_VERSIONS.lines() {
            let ways = row.split(" | ").nth(2).expect("a cell").split(", ");
            assert!(
                ways.into_iter().all(|way| ["schema", "source", "rehearsed", "host"].contains(&way)),
                "{row}"
            );
        }
    }

    #[test]
    fn other_versions_of_a_host_are_named() {
        let status = |cann| check_versions(&[("CANN", Some(cann))])[0].status;
        assert_eq!((status("8.5.0"), status("9.1.RC2")), (CheckStatus::Passed, CheckStatus::Passed));
        assert_eq!((status("9.3.0"), status("8.0.RC1")), (CheckStatus::Warning, CheckStatus::Warning));
        let all = check_versions(&[("driver", Some("of a later year")), ("torch_npu", Some("2.14.0"))]);
        let warned: Vec<&DoctorCheck> =
            all.iter().filter(|check| check.status == CheckStatus::Warning).collect();
        assert!(
            all.len() == 7 && warned.len() == 1 && warned[0].found.starts_with("driver 23.0.5"),
            "{all:?}"
        );
    }
}
