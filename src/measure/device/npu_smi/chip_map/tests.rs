//! Numbers of chips on hosts and in containers, by the layouts of the vendor's tool.

use proptest::prelude::*;

use super::*;
use crate::measure::device::npu_smi::parse_info;

/// A2 with eight cards, of which a container sees cards 1 and 2.
const A2: &str = "\
\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Name                     
\t1                              0                              0                              Ascend 910B3
\t1                              1                              -                              Mcu                           
\t2                              0                              1                              Ascend 910B3
\t2                              1                              -                              Mcu                           
";

/// A3, of which a container sees the second die of card 4 and both dies of card 5.
const A3: &str = "\
DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)
\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Phy-ID                    Chip Name
\t4                              1                              0                              9                              Ascend910
\t4                              2                              -                              -                              Mcu
\t5                              0                              1                              10                             Ascend910
\t5                              1                              2                              11                             Ascend910
\t5                              2                              -                              -                              Mcu
";

/// Two cards of the 310P, whose ids are not contiguous.
const C310P: &str = "\
\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Name
\t0                              0                              0                              Ascend 310P3
\t0                              1                              -                              Mcu
\t32                             0                              1                              Ascend 310P3
\t32                             1                              -                              3559
";

const ASCEND_950: &str = "\
\tNPU ID                         Slot ID                        Chip ID                        Chip Phy-ID                    Chip Name
\t0                              0                              0                              3                              Ascend950DT
\t1                              1                              0                              4                              Ascend950DT
";

/// Card, chip, logic id and number on the host of each row.
fn numbers(text: &str) -> Vec<(u32, u32, u32, Option<u32>)> {
    let rows = parse_chip_map(text).expect("a layout of the vendor");
    rows.iter().map(|row| (row.npu, row.chip, row.logical_id.0, row.phy_id)).collect()
}

#[test]
fn numbers_of_every_layout_are_read_without_microcontrollers() {
    assert_eq!(numbers(A2), [(1, 0, 0, None), (2, 0, 1, None)]);
    assert_eq!(numbers(A3), [(4, 1, 0, Some(9)), (5, 0, 1, Some(10)), (5, 1, 2, Some(11))]);
    assert_eq!(numbers(C310P), [(0, 0, 0, None), (32, 0, 1, None)]);
    assert_eq!(numbers(ASCEND_950), [(0, 0, 0, Some(3)), (1, 0, 1, Some(4))], "its NPU ids are logic ids");
    for text in [A2, A3, C310P, ASCEND_950] {
        let squeezed: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(numbers(&squeezed.join("\r\n")), numbers(text), "offsets are ignored");
    }
}

#[test]
fn texts_that_are_not_the_map_are_errors() {
    let error = |text: &str| parse_chip_map(text).expect_err("not the map").to_string();
    assert!(error("").contains("found nothing"));
    assert!(error("This device does not support querying mapping.\n").contains("`This device does not"));
    assert_eq!(
        error("NPU ID Chip ID Chip Logic ID Chip Name\n0 0\n"),
        "line 2: expected one value for each of `NPU ID`, `Chip ID`, `Chip Logic ID`, `Chip Name`, found `0 0`"
    );
    assert_eq!(
        error("NPU ID Chip ID Chip Logic ID Chip Name\n0 x 0 Ascend\n"),
        "line 2: expected a number for `Chip ID`, found `x`"
    );
    assert_eq!(
        error(&A2.replace("2                              0                              1 ", "2 0 0 ")),
        "expected one chip for each logic id, found id 0 at two chips"
    );
}

/// The table of `npu-smi info` for cards of an A2, with these ids.
fn a2_table(cards: &[u32]) -> String {
    let mut text = "\
        | NPU   Name | Health | Power(W) Temp(C) Hugepages-Usage(page)|\n\
        | Chip       | Bus-Id | AICore(%) Memory-Usage(MB) HBM-Usage(MB) |\n"
        .to_owned();
    for card in cards {
        text += &format!(
            "| {card} 910B3 | OK | 97.5 41 0 / 0 |\n| 0 | 0000:C{card}:00.0 | 0 0 / 0 3 / 65536 |\n"
        );
    }
    text
}

#[test]
fn chips_are_matched_by_card_and_chip_and_numbered_by_position_without_a_map() {
    let mut info = parse_info(&a2_table(&[2, 1])).expect("the table");
    let ids = |info: &NpuSmiInfo| -> Vec<(u32, u32)> {
        info.chips.iter().map(|chip| (chip.physical_id, chip.logical_id.0)).collect()
    };
    assert_eq!((ids(&info), info.logical_ids), (vec![(2, 0), (1, 1)], LogicalIdSource::TablePosition));
    info.apply_chip_map(&parse_chip_map(A2).expect("a map")).expect("both chips");
    assert_eq!((ids(&info), info.logical_ids), (vec![(2, 1), (1, 0)], LogicalIdSource::ChipMap));
    let mut other = parse_info(&a2_table(&[1, 7])).expect("the table");
    let error = other.apply_chip_map(&parse_chip_map(A2).expect("a map")).expect_err("no card 7");
    assert_eq!(error, NpuSmiError::NoLogicId { npu: 7, chip: 0 });
    assert_eq!((ids(&other), other.logical_ids), (vec![(1, 0), (7, 1)], LogicalIdSource::TablePosition));
}

proptest! {
    #[test]
    fn any_text_is_handled(text in any::<String>(), rows in "([ 0-9x-]{0,20}\n){0,6}") {
        let _ = parse_chip_map(&text);
        let _ = parse_chip_map(&format!("NPU ID Chip ID Chip Logic ID Chip Name\n{rows}"));
    }
}
