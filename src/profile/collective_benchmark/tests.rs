use std::path::Path;

use super::{BenchmarkDuration, BenchmarkTool, CollectiveBenchmark};
use crate::{
    base::command_error::CommandError,
    kernel::{CollectiveKind, Dtype},
};

fn parse(text: &str) -> Result<CollectiveBenchmark, CommandError> {
    CollectiveBenchmark::parse(Path::new("out.txt"), text)
}

fn hccl(rows: &str) -> String {
    format!(
        "the minbytes is 8192, maxbytes is 67108864, iters is 20, warmup_iters is 5\n\
             data_size(Bytes): | aveg_time(us): | alg_bandwidth(GB/s): | check_result:\n{rows}"
    )
}

const NCCL: &str = "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20\n\
    # Using devices\n#  Rank  0 Group  0 Pid  7 on host device  0 [0x07] X\n#  Rank  1 Group  0 Pid  8 on host device  1 [0x08] X\n\
    #\n#                                                out-of-place                       in-place\n\
    #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
    #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n\
         1048576        131072      half    none      -1    50.00   20.97   10.49      0    48.00   21.85   10.92      0\n\
         2097152        262144      half    none      -1    80.00   26.21   13.11    N/A    79.00   26.55   13.27    N/A\n\
    # Out of bounds values : 0 OK\n# Avg bus bandwidth    : 11.0\n";

#[test]
fn hccl_test_is_read_with_either_meaning_of_its_sizes() {
    // 1 MiB in 100 us is 10.48576 GB/s, or 9.76563 GiB/s.
    let kind = CollectiveKind::AllGather;
    for (bandwidth, message) in
        [("10.48576", 131_072), ("9.76563", 131_072), ("83.88608", 1 << 20), ("78.12500", 1 << 20)]
    {
        let read = parse(&hccl(&format!("1048576 | 100.00 | {bandwidth} | success\n"))).expect("a table");
        let found = read.durations(kind, 8, Some(&Dtype::Float)).expect("durations");
        assert_eq!(
            (found[0].message, found[0].micros, found[0].is_checked),
            (message, 100.0, true),
            "{bandwidth}"
        );
    }
    let reduce = parse(&hccl("1048576 | 100.00 | 10.48576 | NULL\n")).expect("a table");
    let found = reduce.durations(CollectiveKind::AllReduce, 8, Some(&Dtype::Float)).expect("durations");
    assert_eq!((found[0].message, found[0].is_checked), (1 << 20, false));
    let odd = parse(&hccl("1048576 | 100.00 | 20.97152 | success\n")).expect("a table");
    let error = odd.durations(kind, 8, Some(&Dtype::Float)).expect_err("neither");
    assert!(
        error.to_string().contains("out.txt:3: 20.97152 GB/s is not the bandwidth of 1048576 bytes"),
        "{error}"
    );
    let untyped = reduce.durations(CollectiveKind::AllReduce, 8, None).expect_err("no type");
    assert!(untyped.to_string().contains("does not print the element type"), "{untyped}");
}

/// A rank that fails prints a line of its own, while the printing rank may still have success.
#[test]
fn sizes_with_wrong_results_are_left_out() {
    let rows = "local rank_id 3, check result failed, 1048576 | 100.00 | 10.48576 | failed\n\
                1048576 | 100.00 | 10.48576 | success\n2097152 | 150.00 | 13.98101 | failed\n\
                4194304 | 250.00 | 16.77722 | success\n4194304 | 260.00 | 16.13194 | success\n";
    let found = parse(&hccl(rows)).expect("a table");
    assert_eq!(found.failed, [1 << 20, 2 << 20].into());
    let found = found.durations(CollectiveKind::AllReduce, 8, Some(&Dtype::Float)).expect("durations");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].micros, 255.0);
}

#[test]
fn nccl_tests_has_sizes_of_all_ranks_and_lists_them() {
    let read = parse(NCCL).expect("a table");
    assert_eq!((read.tool, read.ranks), (BenchmarkTool::NcclTests, Some(2)));
    let found = read.durations(CollectiveKind::ReduceScatter, 2, None).expect("durations");
    let expected = |message, micros, is_checked| BenchmarkDuration {
        message,
        micros,
        dtype: Dtype::Float16,
        is_checked,
    };
    assert_eq!(found, [expected(1 << 19, 50.0, true), expected(1 << 20, 80.0, false)]);
    // The name of the reduction is missing, as some versions print gathers.
    let blank = parse(&NCCL.replace("    none      -1", "              -1")).expect("a table");
    assert_eq!(blank.durations(CollectiveKind::AllGather, 2, None).expect("durations"), found);
    let wrong = parse(&NCCL.replacen("10.49      0", "10.49      7", 1)).expect("a table");
    assert_eq!(wrong.failed, [1 << 20].into());
}

#[test]
fn odd_outputs_are_errors_with_their_line() {
    let error = |text: &str| parse(text).expect_err(text).to_string();
    for (text, expected) in [
        ("", "out.txt: contains no table of hccl_test or nccl-tests"),
        ("hccl interface return err ./common/src/hccl_test_common.cc:538, retcode: 7\n", "contains no table"),
        (&hccl(""), "the table has no line"),
        (&hccl("8192 | 764.55\n"), "out.txt:3: 2 cells between `|`, expected 4"),
        (&hccl("8192 | fast | 0.01 | success\n"), "out.txt:3: `fast` in column `aveg_time` is no number"),
        (&hccl("-1 | 1 | 0.01 | success\n"), "`-1` in column `data_size` is no number"),
        (
            &hccl("8192 | 0 | 0.01 | success\n"),
            "the time of 8192 bytes is 0e0 us, expected 0.001 us to an hour",
        ),
        (&hccl("8192 | nan | 0.01 | success\n"), "expected 0.001 us to an hour"),
        (&hccl("8192 | 1e308 | 0.01 | success\n"), "is 1e308 us, expected 0.001 us to an hour"),
        (&hccl("8192 | 1 | 0.01 | maybe\n"), "`maybe` in column `check_result`"),
        (&(hccl("8192 | 1 | 8.192 | success\n") + &hccl("")), "out.txt:5: a second table begins here"),
        (&NCCL.replace("20.97   10.49      0", "20.97"), "out.txt:9: 11 cells, the header has 13"),
        (&NCCL.replace("half", "quarter"), "`quarter` in column `type` is no element type"),
    ] {
        assert!(error(text).contains(expected), "{}\n{expected}", error(text));
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(data_size\\(Bytes\\): \\| a \\| b \\| c\n)?[-0-9a-z|., #\n]{0,200}") {
        if let Ok(read) = parse(&text) {
            let _ = read.durations(CollectiveKind::AllGather, 8, Some(&Dtype::Float));
        }
    }
}
