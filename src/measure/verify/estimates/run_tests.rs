use crate::{
    base::stats::{hash_numbers, normal_deviate},
    measure::verify::estimates::*,
};

/// Draws of cases in collections, with effects that the cases of a collection share.
struct DrawnNights {
    seed: u64,
    /// Standard deviations of the offset of a case in a collection, and of an effect of a collection.
    own: f64,
    shared: f64,
}

impl DrawnNights {
    fn median(&self, run: usize, collection: i64, case: u64, shift: f64) -> MeasuredMedian {
        let draw =
            |of_case: u64| normal_deviate(hash_numbers(&[self.seed, collection.cast_unsigned(), of_case]));
        let launch_noise = 0.004 * (0.3 * draw(1_000 + case)).exp();
        let log_median = 100_000_f64.ln() + shift + self.own * draw(case + 1) + self.shared * draw(0);
        MeasuredMedian {
            case: CaseId::from_stored(format!("{case:016x}")),
            software: 0,
            collection,
            is_of_run: run == 1,
            run,
            median: CollectionMedian { case: 0, collection: 0, log_median, launch_noise },
        }
    }
}

/// A night in which every case has two collections of eight, and a second one in which each has one of four.
fn two_nights(drawn: &DrawnNights, cases: u64, shift: f64) -> Vec<MeasuredMedian> {
    let first = (0..cases).flat_map(|case| {
        let number = i64::try_from(case % 4).expect("small");
        [number, 4 + number].map(|collection| drawn.median(0, collection, case, 0.0))
    });
    let second =
        (0..cases).map(|case| drawn.median(1, 8 + i64::try_from(case % 4).expect("small"), case, shift));
    first.chain(second).collect()
}

/// 95 % of the intervals of a run of one collection per case contain its median without noise, with noise that is the
/// case's own or the variance of the collection; a difference from the first night does not widen them.
#[test]
fn intervals_of_a_run_of_one_collection_contain_the_truth() {
    for (own, shared, shift) in
        [(0.006, 0.0, 0.0), (0.006, 0.003, 0.0), (0.002, 0.005, 0.0), (0.006, 0.003, 0.06)]
    {
        let (mut covered, mut all, mut width) = (0, 0, 0.0);
        for seed in 0..60 {
            let drawn = DrawnNights { seed, own, shared };
            let estimates = RunEstimates::from_medians(&two_nights(&drawn, 40, shift));
            for estimate in estimates.by_case.values() {
                let error = estimate.log_median - 100_000_f64.ln() - shift;
                covered += usize::from(error.abs() <= estimate.half_width);
                width += estimate.half_width;
                all += 1;
            }
        }
        let (share, width) = (f64::from(covered as u32) / f64::from(all), width / f64::from(all));
        assert_eq!(all, 2_400);
        let deviation = f64::hypot(own, shared);
        assert!(share > 0.93, "{share} {width} {own} {shared} {shift}");
        assert!(width < 3.5 * deviation, "{share} {width} {own} {shared} {shift}");
    }
}

/// Nights in which each case is measured once: only the difference between them shows a variance.
#[test]
fn variance_between_runs_counts_where_no_run_repeats_cases() {
    let drawn = DrawnNights { seed: 5, own: 0.005, shared: 0.0 };
    let nights = |cases: u64| -> Vec<MeasuredMedian> {
        let of_run = |run: usize| {
            let collection = i64::try_from(run).expect("small");
            (0..cases).map(move |case| (run, collection, case))
        };
        let all = (0..3).flat_map(of_run);
        all.map(|(run, collection, case)| drawn.median(run, collection, case, 0.0)).collect()
    };
    let estimates = RunEstimates::from_medians(&nights(30));
    assert_eq!((estimates.by_case.len(), estimates.collections.len()), (30, 30));
    assert!(estimates.by_case.values().all(|estimate| (0.005..0.05).contains(&estimate.half_width)));
    // Few cases have their own variance over at least three collections.
    let few = RunEstimates::from_medians(&nights(3));
    assert_eq!(few.by_case.len(), 3);
    assert!(few.by_case.values().all(|estimate| estimate.collections == 1 && estimate.freedom == 2.0));
    let two: Vec<MeasuredMedian> = nights(3).into_iter().filter(|one| one.run < 2).collect();
    let unknown = RunEstimates::from_medians(&two);
    assert_eq!((unknown.by_case.len(), unknown.collections.len()), (0, 3));
}

/// A run that continued with other software has the estimates of the newest one only.
#[test]
fn collections_of_other_software_do_not_count() {
    let drawn = DrawnNights { seed: 7, own: 0.005, shared: 0.0 };
    let mut all = two_nights(&drawn, 30, 0.0);
    all.iter_mut().filter(|one| one.run == 0).for_each(|one| one.software = 1);
    let estimates = RunEstimates::from_medians(&all);
    assert_eq!((estimates.by_case.len(), estimates.collections.len()), (0, 30));
}
