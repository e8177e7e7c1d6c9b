use proptest::prelude::*;

use super::*;
use crate::kernel::{
    Case, CaseAttributes, KernelName, SignatureCells,
    expression::{CompiledExpr, VariableSlot},
};

fn error(text: &str) -> String {
    let mut names = FilterNames::default();
    names.add_columns(["EP Size", "Runtime num_heads", "MicroBench Samples"]);
    let checked = CaseFilter::parse(text).and_then(|filter| filter.check_names(&names));
    checked
        .map_or_else(|error| format!("{}\nhint: {}", error.message, error.hint), |()| "accepted".to_owned())
}

#[test]
fn errors_point_at_the_place() {
    let faults = [
        "kernl ~ MatMul",
        "kernel ~ MatMul & m",
        "(kernel = Add | m < 5",
        "kernel = Add)",
        "kernel = Add m < 5",
        "verdict == okay",
        "verdict = ok && m < 5",
        "median * 2 > 5 and ep_size = 1",
        "1 < ep_size < 5",
        "ep_size + 5ms > 2",
        "max(ep_size) and has ep_size",
        "verdict = nosy",
        "median < 5 parsecs",
        "median < 5d",
        "age > 7",
        "kernel < Add",
        "device ~ 1",
        "deviation > much",
        "deviation > 20 %",
        "\"EP Siz\" = 5",
        "reason ~ \"no end",
        "µµ = 1 & )",
        "has",
        "",
        "\"EP Size\" = 16 & ep_size >= 8 & NUM_HEADS = 4 & has \"MicroBench Samples\" & median < 5ms & age > 7d",
    ];
    insta::assert_snapshot!(faults.map(error).join("\n\n"));
}

#[test]
fn deep_and_long_filters_are_refused_and_not_a_crash() {
    assert!(error(&"(".repeat(1_000)).contains("nested too deeply"));
    assert!(error(&"!".repeat(1_000)).contains("nested too deeply"));
    let chain = vec!["kernel=a"; 400].join(" & ");
    assert!(!CaseFilter::parse(&chain).expect("a filter").matches(&CaseValues::default()));
    assert!(error(&vec!["kernel=a"; 10_000].join("|")).contains("more than 800 operators"));
}

/// The carets of a fault in a long filter are near it.
#[test]
fn long_filters_are_shown_around_the_fault() {
    let filter =
        format!("{} & kernl = a & {}", vec!["kernel = a"; 40].join(" | "), vec!["m < 5"; 40].join(" & "));
    let shown = error(&filter);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[1].starts_with("  ...") && lines[1].ends_with("..."), "{shown}");
    let caret = lines[2].find('^').expect("carets");
    assert_eq!(lines[1].get(caret..caret + 5), Some("kernl"), "{shown}");
    assert_eq!(lines[2].trim(), "^^^^^");
    // A place at the very end, behind all characters.
    let open = format!("{} &", vec!["kernel = a"; 40].join(" | "));
    let shown = error(&open);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[1].starts_with("  ...") && lines[1].ends_with('&'), "{shown}");
    assert_eq!(lines[2].trim(), "^", "{shown}");
}

fn case() -> Case {
    let inputs =
        SignatureCells { shapes: "64,1024;1024,512", dtypes: "DT_BF16;INT8", formats: "ND;FRACTAL_NZ" };
    let mut attributes = CaseAttributes::default();
    attributes.set("EP Size", "16");
    attributes.set("Runtime input_layout", "TND");
    Case {
        kernel: KernelName::new("MatMulV2").expect("a name"),
        inputs: inputs.parse().expect("cells"),
        outputs: Vec::new(),
        attributes,
    }
}

#[test]
fn each_name_compares_the_value_of_the_case() {
    let case = case();
    let values = CaseValues {
        case: Some(&case),
        verdict: Some("noisy".to_owned()),
        age: Some(8.0 * 86_400.0),
        devices: vec![0, 3],
        median: Some(10.5),
        production: Some(10.0),
        cells: vec![
            ("MicroBench Samples".to_owned(), "20".to_owned()),
            ("Empty".to_owned(), "N/A".to_owned()),
        ],
        ..CaseValues::default()
    };
    let is = |text: &str| CaseFilter::parse(text).expect("a filter").matches(&values);
    let all_true = [
        "kernel = MatMulV2",
        "kernel ~ matmul",
        "shape ~ 64,1024",
        "dim = 512",
        "dtype = BF16",
        "dtype = int8",
        "dtype != float16",
        "format = FRACTAL_NZ",
        "verdict = noisy & deviation > 4.9% & deviation < 5.1",
        "device = 3 & device != 1",
        "median = 0.0105ms",
        "median >= 10500ns & median <= 10.5us & median > 10",
        "age > 1w & age < 200h & !(age > 9d)",
        "ep_size = 16.0 & \"EP Size\" > 8 & input_layout = TND",
        "\"MicroBench Samples\" >= 20",
        "has median & !has mean & !has Empty",
        "kernel = Add | kernel = MatMulV2 & has age",
        // Both spellings, and arithmetic of numbers.
        "kernel == Add or kernel == MatMulV2 and has age and not has mean",
        "ep_size % 8 == 0 & ep_size / 4 = 4 & ep_size = 2 * 8 and max(ep_size, 20) = 20 and 8 < ep_size",
        "input_layout = TND & input_layout != num_heads & run !~ 2026-11-27T10 | has case",
    ];
    let all_false = [
        "dtype != bf16",
        "dtype !~ int",
        "device != 3",
        // A missing value is not zero, and not another value either.
        "mean < 5",
        "mean >= 0",
        "mean != 5",
        "host = a",
        "host !~ a",
        "host != a",
        "Empty = 0",
        "(kernel = MatMulV2 | has age) & kernel = Add",
    ];
    assert_eq!(all_true.map(|text| is(text).then_some(text)), all_true.map(Some));
    assert_eq!(all_false.map(|text| (!is(text)).then_some(text)), all_false.map(Some));
}

#[test]
fn dimensions_have_the_names_of_the_catalogue() {
    let catalogue = crate::kernel::catalogue::Catalogue::load(&crate::base::assets::AssetFiles::embedded())
        .expect("it loads");
    let mut case = case();
    let inputs = SignatureCells { shapes: "64,1024;1024,512", dtypes: "DT_BF16;DT_BF16", formats: "ND;ND" };
    case.inputs = inputs.parse().expect("cells");
    case.attributes = CaseAttributes::default();
    let entry = catalogue.entry(&case.kernel);
    let values = CaseValues { case: Some(&case), entry, ..CaseValues::default() };
    let is = |text: &str| CaseFilter::parse(text).expect("a filter").matches(&values);
    assert!(is("m = 64 & k = 1024 & N = 512") && !is("m > 64"));
}

/// A filter over two names of numbers, with its truth for given values in a form of its own.
fn any_numeric() -> impl Strategy<Value = (String, Vec<bool>)> {
    let operators = ["=", "!=", "<", "<=", ">", ">="];
    let leaf = (any::<bool>(), 0..6_usize, -2..3_i32, any::<bool>()).prop_map(
        move |(first, operator, number, has)| {
            let name = if first { "x" } else { "y" };
            let text =
                if has { format!("has {name}") } else { format!("{name}{}{number}", operators[operator]) };
            let truth = all_values().map(|values| {
                let Some(value) = (if first { values.0 } else { values.1 }) else { return false };
                let order = value.cmp(&number);
                has || match operator {
                    0 => order.is_eq(),
                    1 => order.is_ne(),
                    2 => order.is_lt(),
                    3 => order.is_le(),
                    4 => order.is_gt(),
                    _ => order.is_ge(),
                }
            });
            (text, truth.collect::<Vec<_>>())
        },
    );
    leaf.prop_recursive(5, 24, 2, |inner| {
        let pair = |combine: fn(bool, bool) -> bool, sign: &'static str| {
            move |((a, left), (b, right)): ((String, Vec<bool>), (String, Vec<bool>))| {
                let truth = left.iter().zip(&right).map(|(left, right)| combine(*left, *right));
                (format!("({a}) {sign} ({b})"), truth.collect())
            }
        };
        prop_oneof![
            inner.clone().prop_map(|(text, truth)| {
                (format!("!({text})"), truth.into_iter().map(|is_true| !is_true).collect())
            }),
            (inner.clone(), inner.clone()).prop_map(pair(|a, b| a && b, "&")),
            (inner.clone(), inner).prop_map(pair(|a, b| a || b, "|")),
        ]
    })
}

/// All pairs of values of `x` and `y`, of which each may be missing.
fn all_values() -> impl Iterator<Item = (Option<i32>, Option<i32>)> {
    let values = || std::iter::once(None).chain((-2..3).map(Some));
    values().flat_map(move |x| values().map(move |y| (x, y)))
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-z0-9 =!<>~&|()\"'\\\\µ]{0,40}|.{0,40}") {
        let parsed = CaseFilter::parse(&text);
        let shown = parsed.map_or_else(|error| error.message, |filter| filter.as_str().to_owned());
        prop_assert!(shown.len() < 10_000);
    }

    #[test]
    fn filters_agree_with_their_truth_table((text, truth) in any_numeric()) {
        let filter = CaseFilter::parse(&text).expect("a filter");
        let case = case();
        for ((x, y), is_true) in all_values().zip(truth) {
            let cell = |name: &str, value: Option<i32>| Some((name.to_owned(), value?.to_string()));
            let cells = [cell("x", x), cell("y", y)].into_iter().flatten().collect();
            let values = CaseValues { case: Some(&case), cells, ..CaseValues::default() };
            prop_assert_eq!(filter.matches(&values), is_true, "{} for x {:?}, y {:?}", text, x, y);
        }
    }

    /// A filter and a condition of a grid with the same words select the same dimensions.
    #[test]
    fn a_filter_and_a_condition_mean_the_same(
        text in "(not |!)?(m|n|3|m \\+ n|max\\(m, n\\)|m / 2|n % 4) ?(=|==|!=|<|<=|>|>=) ?(n|m|2|-1|m\\*2|n-1|n/2)\
                 ( (and|&|or|\\|) (!|not )?(m|n) (=|==|<) (n|[0-9]))?",
        dims in proptest::array::uniform2(0_i32..9),
    ) {
        let [m, n] = dims;
        let slots = [("m", 0), ("n", 1)].map(|(name, index)| (name, VariableSlot::At(index)));
        let variable = |name: &str| slots.iter().find(|(known, _)| *known == name).map(|(_, slot)| *slot);
        let condition = CompiledExpr::compile(&Expr::parse(&text).expect("a condition"), &variable);
        let holds = condition.expect("compiles").evaluate_at(&[i64::from(m), i64::from(n)]);
        let filter = CaseFilter::parse(&text).expect("a filter");
        let mut names = FilterNames::default();
        names.add_columns(["m", "n"]);
        prop_assert_eq!(filter.check_names(&names), Ok(()), "{}", text);
        let case = case();
        let cells = vec![("m".to_owned(), m.to_string()), ("n".to_owned(), n.to_string())];
        let values = CaseValues { case: Some(&case), cells, ..CaseValues::default() };
        prop_assert_eq!(filter.matches(&values), holds == Ok(1), "{} for m {}, n {}", text, m, n);
    }
}
