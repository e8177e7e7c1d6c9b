//! Output of the stand-in for `npu-smi`: the table of `npu-smi info`, the list of `npu-smi info -l` and the numbers of
//! `npu-smi info -m` of an A3 host with two dies per card, line by line as in a capture of driver 25.0.rc1 and, for the
//! numbers, in the public source of the driver's tool.

use std::path::Path;

/// Device memory of every die, in MB.
pub(super) const HBM_TOTAL_MB: u64 = 65_536;

const VERSION: &str = "25.0.rc1";
const DIES_PER_CARD: u32 = 2;
const WHOLE: usize = 96;
/// Within a card, between its dies.
const BETWEEN_DIES: &str =
    "+------------------------------------------------------------------------------------------------+\n";
const THIN: &str =
    "+---------------------------+---------------+----------------------------------------------------+\n";
const THICK: &str =
    "+===========================+===============+====================================================+\n";

/// Readings of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedReading {
    /// Degrees Celsius.
    pub temperature_c: i64,
    /// Watts of the whole card, printed with one decimal at the card's first die only.
    pub power_w: f64,
    /// Device memory in use.
    pub hbm_used_mb: u64,
    /// Use of the cores in percent.
    pub aicore_percent: u32,
    /// The processes that hold the device: id, name, MB.
    pub processes: Vec<(u32, String, u64)>,
    /// True if the driver does not see the device: it is left out.
    pub is_lost: bool,
}

/// An idle device, as the real capture has it: memory is in use even so.
impl Default for SimulatedReading {
    fn default() -> Self {
        Self {
            temperature_c: 45,
            power_w: 160.4,
            hbm_used_mb: 2_892,
            aicore_percent: 0,
            processes: Vec::new(),
            is_lost: false,
        }
    }
}

/// Process ids in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessIdColumns {
    /// Those of the readings.
    Plain,
    /// Invented ids of the host.
    Host,
    /// Invented ids of the host, and in a further column those of the readings.
    HostAndContainer,
}

impl ProcessIdColumns {
    /// Returns the id in the first column, and the text of the further one. A process that does not run here is outside
    /// the container, and its id is the host's.
    fn shown_ids(self, pid: u32) -> (u32, String) {
        let is_inside = Path::new("/proc").join(pid.to_string()).exists();
        match self {
            Self::Plain => (pid, String::new()),
            _ if !is_inside => (pid, "NA".to_owned()),
            _ => (pid.saturating_add(HOST_PID_OFFSET), pid.to_string()),
        }
    }
}

/// Difference between the id of a process on the host, which is invented, and inside the container.
const HOST_PID_OFFSET: u32 = 3_000_000;

/// The table of `npu-smi info`. The n-th reading is that of device n; devices without one are idle.
pub fn info_table(devices: u32, readings: &[SimulatedReading]) -> String {
    info_table_with(devices, readings, ProcessIdColumns::Plain)
}

/// As [`info_table`], with these process ids.
pub(super) fn info_table_with(
    devices: u32,
    readings: &[SimulatedReading],
    columns: ProcessIdColumns,
) -> String {
    let idle = SimulatedReading::default();
    let rows: Vec<(u32, &SimulatedReading)> =
        (0..devices).zip(readings.iter().chain(std::iter::repeat(&idle))).collect();
    let is_seen = |dies: &[(u32, &SimulatedReading)]| dies.iter().any(|(_, reading)| !reading.is_lost);
    let cards = || rows.chunks(DIES_PER_CARD as usize).zip(0_u32..).filter(|(dies, _)| is_seen(dies));

    let mut table = BETWEEN_DIES.to_owned();
    let version = format!(" npu-smi {VERSION:<24} Version: {VERSION}");
    line(&mut table, &[(WHOLE, version)]);
    table.push_str(THIN);
    table.push_str(
        "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|\n",
    );
    table.push_str(
        "| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |\n",
    );
    table.push_str(THICK);
    for (dies, card) in cards() {
        let seen = dies.iter().zip(0_u32..).filter(|((_, reading), _)| !reading.is_lost);
        for (number, (&(device, reading), die)) in seen.enumerate() {
            if number > 0 {
                table.push_str(BETWEEN_DIES);
            }
            chip(&mut table, card, die, device, reading);
        }
        table.push_str(THICK);
    }

    table.push_str(THIN);
    table.push_str(if columns == ProcessIdColumns::HostAndContainer {
        "| NPU     Chip              | Process id    | Process name | Process memory(MB) | Process id in container |\n"
    } else {
        "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |\n"
    });
    table.push_str(THICK);
    for (dies, card) in cards() {
        processes(&mut table, card, dies, columns);
        table.push_str(THICK);
    }
    table
}

/// The two lines of one die.
fn chip(table: &mut String, card: u32, die: u32, device: u32, reading: &SimulatedReading) {
    let power = if die == 0 { format!("{:.1}", reading.power_w) } else { "-".to_owned() };
    let (temperature, used, bus) = (reading.temperature_c, reading.hbm_used_mb, bus_id(card, die));
    let values = format!(" {power:<11} {temperature:<17} 0    / 0");
    line(table, &[(27, format!(" {card:<5} Ascend910")), (15, " OK".to_owned()), (52, values)]);
    let cores = reading.aicore_percent;
    let values = format!(" {cores:<11} 0    / 0          {used:<5}/ {HBM_TOTAL_MB}");
    line(table, &[(27, format!(" {die:<5} {device}")), (15, format!(" {bus}")), (52, values)]);
}

/// The lines of one card in the table of processes.
fn processes(table: &mut String, card: u32, dies: &[(u32, &SimulatedReading)], columns: ProcessIdColumns) {
    if dies.iter().all(|(_, reading)| reading.processes.is_empty()) {
        line(table, &[(WHOLE, format!(" No running processes found in NPU {card}"))]);
    }
    for ((_, reading), die) in dies.iter().zip(0_u32..).filter(|((_, reading), _)| !reading.is_lost) {
        for (pid, name, mb) in &reading.processes {
            let [chip, name] = [format!(" {card:<7} {die}"), format!(" {}", shown_name(name))];
            let (pid, inside) = columns.shown_ids(*pid);
            let [pid, mb] = [format!(" {pid}"), format!(" {mb}")];
            if columns == ProcessIdColumns::HostAndContainer {
                let cells = [(27, chip), (15, pid), (14, name), (20, mb), (25, format!(" {inside}"))];
                line(table, &cells);
            } else {
                line(table, &[(27, chip), (15, pid), (26, name), (25, mb)]);
            }
        }
    }
}

/// A name as the kernel keeps it, 15 bytes long; what would break the frame becomes `?`.
fn shown_name(name: &str) -> String {
    let printable =
        |byte: char| if byte.is_ascii_graphic() && byte != '|' || byte == ' ' { byte } else { '?' };
    name.chars().take(15).map(printable).collect()
}

/// The addresses of the capture, counted down from 9D by card; every eight cards have another domain.
fn bus_id(card: u32, die: u32) -> String {
    format!("{:04X}:{:02X}:00.0", card / 8, 0x9D - 4 * (card % 8) + 2 * die)
}

/// One line of cells, each padded to its width.
fn line(table: &mut String, cells: &[(usize, String)]) {
    for (width, text) in cells {
        table.push('|');
        table.push_str(&format!("{text:<width$}"));
    }
    table.push_str("|\n");
}

/// The list of `npu-smi info -l`: the visible cards with their numbers of dies.
pub(super) fn list(devices: u32, readings: &[SimulatedReading]) -> String {
    let entry = |text: &mut String, key: &str, value: &str| {
        text.push_str(&format!("\t{key:<31}: {value}\n"));
    };
    let is_seen = |device: u32| readings.get(device as usize).is_none_or(|reading| !reading.is_lost);
    let dies = |card: u32| {
        let first = card * DIES_PER_CARD;
        (first..devices.min(first + DIES_PER_CARD)).filter(|device| is_seen(*device)).count()
    };
    let cards: Vec<u32> = (0..devices.div_ceil(DIES_PER_CARD)).filter(|card| dies(*card) > 0).collect();
    let mut text = String::new();
    entry(&mut text, "Total Count", &cards.len().to_string());
    for card in cards {
        text.push('\n');
        entry(&mut text, "NPU ID", &card.to_string());
        entry(&mut text, "Product Name", "rehearsal");
        entry(&mut text, "Serial Number", &format!("REHEARSAL{card:04}"));
        entry(&mut text, "Chip Count", &dies(card).to_string());
    }
    text
}

/// The numbers of `npu-smi info -m`: `logic_ids` has the visible devices and their logic ids, ascending. Each card has a
/// microcontroller besides its dies.
pub(super) fn chip_map(logic_ids: &[(u32, u32)]) -> String {
    let mut text = String::new();
    let mut row = |cells: [&str; 5]| {
        let [npu, chip, logic, phy, name] = cells;
        text.push_str(&format!("\t{npu:<30} {chip:<30} {logic:<30} {phy:<30} {name}\n"));
    };
    row(["NPU ID", "Chip ID", "Chip Logic ID", "Chip Phy-ID", "Chip Name"]);
    for card in logic_ids.chunk_by(|one, other| one.0 / DIES_PER_CARD == other.0 / DIES_PER_CARD) {
        for &(device, logic) in card {
            let [npu, die] = [device / DIES_PER_CARD, device % DIES_PER_CARD].map(|id| id.to_string());
            row([&npu, &die, &logic.to_string(), &device.to_string(), "Ascend910"]);
        }
        let npu = card.first().map_or(0, |(device, _)| device / DIES_PER_CARD);
        row([&npu.to_string(), &DIES_PER_CARD.to_string(), "-", "-", "Mcu"]);
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::measure::device::npu_smi::{NpuSmiInfo, parse_info};

    /// Power in tenths of a watt, because the table has one decimal.
    fn reading() -> impl Strategy<Value = SimulatedReading> {
        let process = (any::<u32>(), "[a-zA-Z_/.]{0,15}", 0_u64..70_000);
        (-20_i64..120, 0_u32..9_000, 0..=HBM_TOTAL_MB, prop::collection::vec(process, 0..3)).prop_map(
            |(temperature_c, tenths, hbm_used_mb, processes)| SimulatedReading {
                temperature_c,
                power_w: f64::from(tenths) / 10.0,
                hbm_used_mb,
                aicore_percent: 0,
                processes,
                is_lost: false,
            },
        )
    }

    fn check(info: &NpuSmiInfo, devices: u32, readings: &[SimulatedReading]) {
        assert_eq!(info.version, "25.0.rc1");
        assert!(info.chips.iter().map(|chip| chip.physical_id).eq(0..devices));
        assert_eq!(
            info.processes.len(),
            readings.iter().map(|reading| reading.processes.len()).sum::<usize>()
        );
        for (chip, reading) in info.chips.iter().zip(readings) {
            assert_eq!((chip.npu, chip.chip), (chip.physical_id / 2, chip.physical_id % 2));
            assert_eq!((chip.name.as_str(), chip.health.as_str()), ("Ascend910", "OK"));
            assert_eq!(chip.power_w, (chip.chip == 0).then_some(reading.power_w));
            assert_eq!(chip.temperature_c, Some(reading.temperature_c));
            assert_eq!(chip.memory_used_mb, Some(reading.hbm_used_mb));
            assert_eq!(chip.memory_total_mb, Some(HBM_TOTAL_MB));
            let held: Vec<(u32, String, u64)> = info
                .processes_on(chip)
                .map(|process| (process.pid, process.name.clone(), process.memory_mb.expect("a number")))
                .collect();
            assert_eq!(held, reading.processes);
        }
    }

    #[test]
    fn table_of_any_number_of_devices_parses_back() {
        for devices in 1..=16 {
            let readings: Vec<SimulatedReading> = (0..devices)
                .map(|device| SimulatedReading {
                    temperature_c: 30 + i64::from(device),
                    power_w: 160.0 + f64::from(device) / 2.0,
                    hbm_used_mb: 2_900 + 4_000 * u64::from(device),
                    aicore_percent: 7 * device,
                    processes: (0..device % 3)
                        .map(|n| (1_000 * device + n, format!("python{n}"), 117 + u64::from(n)))
                        .collect(),
                    is_lost: false,
                })
                .collect();
            let info = parse_info(&info_table(devices, &readings)).expect("the table");
            check(&info, devices, &readings);
        }
    }

    #[test]
    fn lines_have_one_width_for_any_process_name() {
        let processes = vec![(u32::MAX, "a|b\nthe name of a long process ü".to_owned(), 65_536)];
        let table = info_table(
            3,
            &[SimulatedReading { hbm_used_mb: 65_536, processes, ..SimulatedReading::default() }],
        );
        assert!(table.lines().all(|line| line.len() == WHOLE + 2), "{table}");
        let info = parse_info(&table).expect("the table");
        assert_eq!(info.processes[0].name, "a?b?the name of");
        assert_eq!(info.chips.len(), 3);
    }

    #[test]
    fn processes_inside_a_container_have_ids_of_both() {
        let own = std::process::id();
        let processes = vec![(own, "python3".to_owned(), 100), (4_100_017, "vllm".to_owned(), 5)];
        let reading = SimulatedReading { processes, ..SimulatedReading::default() };
        let ids = |columns| -> Vec<(u32, Option<u32>)> {
            let table = info_table_with(1, std::slice::from_ref(&reading), columns);
            let info = parse_info(&table).expect("the table");
            info.processes.iter().map(|process| (process.pid, process.container_pid)).collect()
        };
        let host = own + HOST_PID_OFFSET;
        assert_eq!(ids(ProcessIdColumns::Plain), [(own, None), (4_100_017, None)]);
        assert_eq!(ids(ProcessIdColumns::Host), [(host, None), (4_100_017, None)]);
        assert_eq!(ids(ProcessIdColumns::HostAndContainer), [(host, Some(own)), (4_100_017, None)]);
    }

    #[test]
    fn list_contains_every_card() {
        let text = list(3, &[]);
        let values: Vec<(&str, &str)> = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(key, value)| (key.trim(), value.trim()))
            .filter(|(key, _)| !key.contains("Name") && !key.contains("Serial"))
            .collect();
        let expected = [
            ("Total Count", "2"),
            ("NPU ID", "0"),
            ("Chip Count", "2"),
            ("NPU ID", "1"),
            ("Chip Count", "1"),
        ];
        assert_eq!(values, expected);
    }

    proptest! {
        #[test]
        fn table_of_any_readings_parses_back(readings in prop::collection::vec(reading(), 1..=16)) {
            let devices = u32::try_from(readings.len()).expect("at most 16");
            let info = parse_info(&info_table(devices, &readings)).expect("the table");
            check(&info, devices, &readings);
        }

        #[test]
        fn parser_does_not_panic_on_a_damaged_table(
            devices in 1_u32..=16,
            readings in prop::collection::vec(reading(), 0..4),
            lost in any::<prop::sample::Index>(),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        ) {
            let table = info_table(devices, &readings);
            let mut lines: Vec<&str> = table.lines().collect();
            lines.remove(lost.index(lines.len()));
            let mut bytes = lines.join("\n").into_bytes();
            for (at, byte) in flips {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let _ = parse_info(&String::from_utf8_lossy(&bytes));
        }
    }
}
