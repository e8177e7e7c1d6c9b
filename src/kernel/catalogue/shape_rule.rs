//! Shape rules: patterns of the input shapes of a kernel, and its output shapes, in the syntax of the shape cells of
//! the CSV: `M,K;N,K -> M,N`. On the left a name is a dimension, `*B` any number of dimensions, a number itself, and
//! `-` an empty slot. On the right each term is an expression or `*B`; a single name that the inputs leave open is
//! bound by the recorded output.

use std::collections::BTreeSet;

use super::{
    Bindings, Expr, ExprValue,
    mismatch::{FormMismatch, MatchStage, RuleMatch},
};
use crate::base::yaml::split_outside_brackets;
use crate::kernel::expression::{BinaryOperator, ExprNumber};
use serde::Deserialize;

#[derive(Clone, Debug)]
pub struct ShapeRule {
    pub(crate) name: String,
    /// Arguments that are passed as transposed views of the tensors in memory.
    pub(crate) transposed: Vec<String>,
    pub(crate) source: String,
    pub(crate) inputs: Vec<Option<Vec<PatternTerm>>>,
    pub(crate) outputs: ReturnShapes,
    /// Conditions between dimensions, which the operator's definition states.
    pub(crate) relations: Vec<Expr>,
    /// Conditions of the form. Calls that do not fulfil them may be valid.
    pub(crate) limits: Vec<Expr>,
    /// Names inferred from the first recorded output, which is `output` in their expressions.
    pub(crate) inferred: Vec<(String, Expr)>,
}

#[derive(Clone, Debug)]
pub(crate) enum OutputTerm {
    Expr(Expr),
    Sequence(String),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct ReturnShapes(pub(crate) Vec<Vec<OutputTerm>>);

/// Parses shapes separated by `;`; `-` is an output that Python does not get.
impl TryFrom<String> for ReturnShapes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let shapes = text.split(';').filter(|shape| shape.trim() != "-");
        Ok(Self(shapes.map(output_terms).collect::<Result<_, _>>()?))
    }
}

impl ReturnShapes {
    pub(crate) fn evaluate_shapes(&self, bindings: &Bindings) -> Result<Vec<Vec<u64>>, FormMismatch> {
        let unsigned = |dim: i64| u64::try_from(dim).map_err(|_| format!("dimension {dim}").into());
        self.0.iter().map(|terms| output_dims(terms, bindings)?.into_iter().map(unsigned).collect()).collect()
    }

    pub(super) fn shape_nodes<N: ExprNumber>(
        &self,
        found: &mut RuleMatch<N>,
    ) -> Result<Vec<Vec<N>>, FormMismatch> {
        let shapes = self.0.iter().map(|terms| {
            let dims = output_dims(terms, &found.bindings)?;
            for dim in &dims {
                found.compare(dim, BinaryOperator::GreaterEqual, 0, || format!("dimension {dim}"))?;
            }
            Ok(dims)
        });
        shapes.collect()
    }

    pub(crate) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.0.iter().flatten().filter_map(|term| match term {
            OutputTerm::Expr(expr) => Some(expr),
            OutputTerm::Sequence(_) => None,
        })
    }

    pub(crate) fn bare_names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flatten().filter_map(|term| match term {
            OutputTerm::Sequence(name) => Some(name.as_str()),
            OutputTerm::Expr(expr) => expr.bare_name(),
        })
    }
}

impl ShapeRule {
    pub(crate) fn parse(
        name: &str,
        rule: &str,
        conditions: Vec<Expr>,
        transposed: Vec<String>,
    ) -> Result<Self, String> {
        let arrow = rule.split_once("->");
        let (left, right) =
            arrow.ok_or_else(|| format!("`{rule}` has no `->` between inputs and outputs"))?;
        let inputs = left.split(';').map(|slot| input_terms(slot, rule)).collect::<Result<_, _>>()?;
        let outputs = ReturnShapes(right.split(';').map(output_terms).collect::<Result<_, _>>()?);
        let (relations, limits) =
            conditions.into_iter().partition(|condition| condition.root.relates_names());
        let (name, source, inferred) = (name.to_owned(), rule.trim().to_owned(), Vec::new());
        Ok(Self { name, transposed, source, inputs, outputs, relations, limits, inferred })
    }

    pub(crate) fn conditions(&self) -> impl Iterator<Item = &Expr> + Clone {
        self.relations.iter().chain(&self.limits)
    }

    pub(crate) fn takes_slot(&self, slot: usize) -> bool {
        self.inputs.get(slot).is_some_and(Option::is_some)
    }

    pub(crate) fn bound_names(&self) -> BTreeSet<&str> {
        let inputs = self.inputs.iter().flatten().flatten().filter_map(PatternTerm::name);
        let inferred = self.inferred.iter().map(|(name, _)| name.as_str());
        inputs.chain(self.outputs.bare_names()).chain(inferred).collect()
    }

    /// Checks that the rule has such slots, with these numbers of dimensions and the numbers that its patterns give. A case
    /// that passes and cannot be bound contradicts itself; another one may be of a form that the entry lacks.
    fn check_structure<N: ExprNumber>(
        &self,
        inputs: &[Option<Vec<N>>],
        outputs: Option<&[Vec<N>]>,
    ) -> Result<(), String> {
        if inputs.len() > self.inputs.len() {
            return Err(format!("{} input slots, the rule has {}", inputs.len(), self.inputs.len()));
        }
        for (slot, terms) in self.inputs.iter().enumerate() {
            match (terms, inputs.get(slot).and_then(Option::as_deref)) {
                (Some(terms), Some(dims)) => check_dimensions(terms, dims),
                // The profiler shows an optional input that is not given as an empty slot or as a scalar.
                (None, None | Some([])) => Ok(()),
                (None, Some(_)) => Err("the rule leaves it out".to_owned()),
                (Some(_), None) => Err("is empty, the rule needs it".to_owned()),
            }
            .map_err(|error| format!("input {slot}: {error}"))?;
        }
        // Optional outputs at the end are recorded without dimensions, or not at all.
        let optional = self.outputs.0.iter().rev().take_while(|terms| terms.is_empty()).count();
        let most = self.outputs.0.len();
        match outputs.map(<[Vec<N>]>::len) {
            Some(count) if count > most || count < (most - optional).max(1) => {
                Err(format!("{count} output slots, the rule has {most}"))
            }
            _ => Ok(()),
        }
    }

    /// Binds the rule's names to shapes and checks or collects every condition. An input is `None` for an empty slot and
    /// for one at the end that is not recorded. Without outputs, names that the inputs leave open must be bound before.
    pub(super) fn bind<N: ExprNumber>(
        &self,
        inputs: &[Option<Vec<N>>],
        outputs: Option<&[Vec<N>]>,
        found: &mut RuleMatch<N>,
    ) -> Result<(), FormMismatch> {
        let structure = self.check_structure(inputs, outputs);
        structure.map_err(|reason| FormMismatch::at(MatchStage::Structure, reason))?;
        for (slot, (terms, dims)) in self.inputs.iter().zip(inputs).enumerate() {
            if let (Some(terms), Some(dims)) = (terms, dims) {
                found.bind_slot(terms, dims).map_err(|error| error.prefixed("input", slot))?;
            }
        }
        if let Some(outputs) = outputs {
            self.infer_names(outputs, found)?;
            self.bind_outputs(outputs, found)?;
        }
        let mut require_all = |required: &[Expr]| {
            required.iter().try_for_each(|condition| {
                let holds = condition.evaluate_as(&found.bindings, ExprValue::to_bool)?;
                found.require(holds, || format!("`{condition}` does not hold"))
            })
        };
        require_all(&self.relations)?;
        require_all(&self.limits).map_err(FormMismatch::into_limit)
    }

    pub(super) fn count_conflicts(
        &self,
        inputs: &[Option<Vec<i64>>],
        outputs: &[Vec<i64>],
        known: Bindings,
    ) -> usize {
        let mut found = RuleMatch::new(known);
        let slots = (0..self.inputs.len().max(inputs.len())).map(|slot| {
            let terms = self.inputs.get(slot).and_then(Option::as_deref);
            match (terms, inputs.get(slot).and_then(Option::as_deref)) {
                (Some(terms), Some(dims)) => found.count_conflicts(terms, dims),
                (None, None | Some([])) => 0,
                (None, Some(_)) | (Some(_), None) => 1,
            }
        });
        let in_slots: usize = slots.sum();
        let is_refused = !outputs.is_empty() && self.infer_names(outputs, &mut found).is_err();
        let in_outputs = outputs.iter().enumerate().map(|(slot, recorded)| {
            let terms = self.outputs.0.get(slot).map(Vec::as_slice).unwrap_or_default();
            let _ = bind_open_names(terms, recorded, &mut found.bindings);
            match output_dims(terms, &found.bindings) {
                Ok(dims) if dims.len() == recorded.len() => {
                    dims.iter().zip(recorded).filter(|(one, other)| one != other).count()
                }
                _ => recorded.len().max(1),
            }
        });
        let in_outputs = in_outputs.sum::<usize>() + usize::from(is_refused);
        let holds = |condition: &&Expr| condition.evaluate_as(&found.bindings, ExprValue::to_bool) == Ok(1);
        in_slots + in_outputs + self.relations.iter().filter(|condition| !holds(condition)).count()
    }

    fn infer_names<N: ExprNumber>(
        &self,
        outputs: &[Vec<N>],
        found: &mut RuleMatch<N>,
    ) -> Result<(), FormMismatch> {
        for (name, expr) in &self.inferred {
            if found.bindings.get(name).is_none() {
                let mut known = found.bindings.clone();
                known.set("output", ExprValue::List(outputs.first().cloned().unwrap_or_default()));
                let value = expr.evaluate(&known)?;
                found.require_value(&value)?;
                found.bindings.set(name, value);
            }
        }
        Ok(())
    }

    fn bind_outputs<N: ExprNumber>(
        &self,
        outputs: &[Vec<N>],
        found: &mut RuleMatch<N>,
    ) -> Result<(), FormMismatch> {
        for (slot, (terms, recorded)) in self.outputs.0.iter().zip(outputs).enumerate() {
            if let [OutputTerm::Sequence(name)] = terms.as_slice()
                && found.bindings.get(name).is_none()
            {
                found.bindings.set(name, ExprValue::List(recorded.clone()));
                continue;
            }
            bind_open_names(terms, recorded, &mut found.bindings)?;
            let expected = output_dims(terms, &found.bindings);
            let expected = expected.map_err(|error| error.prefixed("output", slot))?;
            if expected == *recorded {
                continue;
            }
            let (shown, expected) = (ExprValue::List(recorded.clone()), ExprValue::List(expected));
            if terms.is_empty() && !recorded.is_empty() {
                // The call of the form does not return the output; another call of the operator may.
                let reason = format!("output {slot} is {shown}, the form does not return it");
                return Err(FormMismatch::at(MatchStage::Structure, reason));
            }
            found.require(expected.equals(&shown)?, || {
                format!("output {slot} is {shown}, the inputs give {expected}")
            })?;
        }
        Ok(())
    }
}

pub(super) fn to_signed(dims: &[u64]) -> Vec<i64> {
    dims.iter().map(|&dim| i64::try_from(dim).unwrap_or(i64::MAX)).collect()
}

fn output_terms(slot: &str) -> Result<Vec<OutputTerm>, String> {
    let terms = split_outside_brackets(slot.trim()).into_iter().filter(|_| !slot.trim().is_empty());
    let terms = terms.map(|term| match term.trim().strip_prefix('*') {
        Some(name) => Ok(OutputTerm::Sequence(name.trim().to_owned())),
        None => Expr::parse(term).map(OutputTerm::Expr).map_err(|error| error.to_string()),
    });
    terms.collect()
}

fn bind_open_names<N: ExprNumber>(
    terms: &[OutputTerm],
    recorded: &[N],
    bindings: &mut Bindings<N>,
) -> Result<(), FormMismatch> {
    let mut place = 0;
    for term in terms {
        if let OutputTerm::Expr(expr) = term
            && let Some(name) = expr.bare_name()
            && bindings.get(name).is_none()
            && let Some(dim) = recorded.get(place)
        {
            bindings.set(name, ExprValue::Number(dim.clone()));
        }
        match output_dims(std::slice::from_ref(term), bindings) {
            Ok(dims) => place += dims.len(),
            Err(error) if error.stage == MatchStage::NotConstant => return Err(error),
            // The caller finds the same error again, and gives the output's number.
            Err(_) => break,
        }
    }
    Ok(())
}

fn output_dims<N: ExprNumber>(terms: &[OutputTerm], bindings: &Bindings<N>) -> Result<Vec<N>, FormMismatch> {
    let mut dims = Vec::new();
    for term in terms {
        let value = match term {
            OutputTerm::Sequence(name) => {
                bindings.get(name).cloned().ok_or_else(|| format!("`*{name}` has no value"))?
            }
            OutputTerm::Expr(expr) => expr.evaluate(bindings)?,
        };
        match value {
            ExprValue::Number(number) => dims.push(number),
            ExprValue::List(list) => dims.extend(list),
            ExprValue::Bool(_) => return Err("a comparison is not a dimension".to_owned().into()),
        }
    }
    Ok(dims)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PatternTerm {
    Name(String),
    Number(i64),
    Rest(String),
}

impl PatternTerm {
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) | Self::Rest(name) => Some(name),
            Self::Number(_) => None,
        }
    }
}

/// Parses the pattern of a slot; `None` for `-`, a slot that must be empty. `rule` is quoted in errors.
pub(super) fn input_terms(slot: &str, rule: &str) -> Result<Option<Vec<PatternTerm>>, String> {
    let slot = slot.trim();
    if slot == "-" {
        return Ok(None);
    }
    if slot.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let terms = slot.split(',').map(str::trim).map(|term| {
        let (name, is_rest) = term.strip_prefix('*').map_or((term, false), |name| (name, true));
        let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        match (is_name, is_rest, name.parse()) {
            (true, true, _) => Ok(PatternTerm::Rest(name.to_owned())),
            (true, false, _) => Ok(PatternTerm::Name(name.to_owned())),
            (false, false, Ok(number)) => Ok(PatternTerm::Number(number)),
            _ => Err(format!("`{term}` in `{rule}` is not a name, a number or `*NAME`")),
        }
    });
    let terms: Vec<PatternTerm> = terms.collect::<Result<_, _>>()?;
    if terms.iter().filter(|term| matches!(term, PatternTerm::Rest(_))).count() > 1 {
        return Err(format!("slot `{slot}` has more than one `*NAME`, so that their lengths are ambiguous"));
    }
    Ok(Some(terms))
}

fn with_dims<'a, N>(
    terms: &'a [PatternTerm],
    mut dims: &'a [N],
) -> Result<impl Iterator<Item = (&'a PatternTerm, &'a [N])>, String> {
    let has_rest = terms.iter().any(|term| matches!(term, PatternTerm::Rest(_)));
    let (rank, fixed) = (dims.len(), terms.len() - usize::from(has_rest));
    if rank < fixed || (!has_rest && rank != fixed) {
        let least = if has_rest { "at least " } else { "" };
        return Err(format!("{rank} dimensions, the rule has {least}{fixed}"));
    }
    Ok(terms.iter().map(move |term| {
        let length = if matches!(term, PatternTerm::Rest(_)) { rank - fixed } else { 1 };
        let (taken, left) = dims.split_at(length);
        dims = left;
        (term, taken)
    }))
}

pub(super) fn check_dimensions<N: ExprNumber>(terms: &[PatternTerm], dims: &[N]) -> Result<(), String> {
    for (term, dims) in with_dims(terms, dims)? {
        if let PatternTerm::Number(number) = term
            && dims[0].constant().is_some_and(|dim| dim != *number)
        {
            return Err(format!("dimension {} must be {number}", dims[0]));
        }
    }
    Ok(())
}

impl<N: ExprNumber> RuleMatch<N> {
    pub(super) fn bind_slot(&mut self, terms: &[PatternTerm], dims: &[N]) -> Result<(), FormMismatch> {
        with_dims(terms, dims)?.try_for_each(|(term, dims)| self.bind_term(term, dims))
    }

    /// Does the same, and returns the number of terms that conflict: without the right number of dimensions, all.
    pub(super) fn count_conflicts(&mut self, terms: &[PatternTerm], dims: &[N]) -> usize {
        let Ok(pairs) = with_dims(terms, dims) else { return terms.len() };
        pairs.filter(|(term, dims)| self.bind_term(term, dims).is_err()).count()
    }

    fn bind_term(&mut self, term: &PatternTerm, dims: &[N]) -> Result<(), FormMismatch> {
        match term {
            PatternTerm::Rest(name) => self.unify(name, ExprValue::List(dims.to_vec())),
            PatternTerm::Name(name) => self.unify(name, ExprValue::Number(dims[0].clone())),
            PatternTerm::Number(number) => self.compare(&dims[0], BinaryOperator::Equal, *number, || {
                format!("dimension {} must be {number}", dims[0])
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(rule: &str, conditions: &[&str]) -> ShapeRule {
        let conditions = conditions.iter().map(|text| Expr::parse(text).expect("an expression")).collect();
        ShapeRule::parse("form", rule, conditions, Vec::new()).expect("a rule")
    }

    fn outputs(form: &ShapeRule, inputs: &[Vec<u64>]) -> Result<Vec<Vec<u64>>, String> {
        let bound = bind_names(form, &present(inputs), None, Bindings::default())?;
        Ok(form.outputs.evaluate_shapes(&bound)?)
    }

    fn bind_names(
        rule: &ShapeRule,
        inputs: &[Option<Vec<u64>>],
        outputs: Option<&[Vec<u64>]>,
        known: Bindings,
    ) -> Result<Bindings, String> {
        let inputs: Vec<Option<Vec<i64>>> =
            inputs.iter().map(|dims| dims.as_deref().map(to_signed)).collect();
        let outputs: Option<Vec<Vec<i64>>> =
            outputs.map(|dims| dims.iter().map(|dims| to_signed(dims)).collect());
        let mut found = RuleMatch::new(known);
        rule.bind(&inputs, outputs.as_deref(), &mut found)?;
        Ok(found.bindings)
    }

    fn present(inputs: &[Vec<u64>]) -> Vec<Option<Vec<u64>>> {
        inputs.iter().cloned().map(Some).collect()
    }

    #[test]
    fn recorded_output_binds_a_dimension_that_the_inputs_leave_open() {
        let top = form("T,E -> T,K; T,K; T,E", &["K <= E"]);
        let bind = |outputs: &[Vec<u64>]| {
            bind_names(&top, &present(&[vec![64, 256]]), Some(outputs), Bindings::default())
        };
        let bound = bind(&[vec![64, 8], vec![64, 8], vec![64, 256]]).expect("fits");
        assert_eq!(bound.get("K"), Some(&ExprValue::Number(8)));
        let why = |outputs: &[Vec<u64>]| bind(outputs).expect_err("does not fit");
        assert_eq!(
            why(&[vec![64, 8], vec![64, 6], vec![64, 256]]),
            "output 1 is [64,6], the inputs give [64,8]"
        );
        assert_eq!(why(&[vec![64, 300], vec![64, 300], vec![64, 256]]), "`K <= E` does not hold");
        assert_eq!(why(&[vec![64], vec![64, 8], vec![64, 256]]), "output 0: `K` has no value here");
    }

    #[test]
    fn rest_pattern_takes_the_remaining_dimensions() {
        let rms = form("*B,D;D -> *B,D;*B,1", &[]);
        let got = outputs(&rms, &[vec![4096, 1, 16, 128], vec![128]]);
        assert_eq!(got, Ok(vec![vec![4096, 1, 16, 128], vec![4096, 1, 16, 1]]));
        let wrong = outputs(&rms, &[vec![4096, 1, 16, 128], vec![64]]);
        assert_eq!(wrong, Err("input 1: D is both 128 and 64".to_owned()));
    }

    #[test]
    fn inexact_division_rejects_the_shapes() {
        let swiglu = form("*B,D -> *B,D/2", &[]);
        assert_eq!(outputs(&swiglu, &[vec![4096, 6144]]), Ok(vec![vec![4096, 3072]]));
        assert_eq!(outputs(&swiglu, &[vec![4096, 7]]), Err("`D/2`: 7 is not a multiple of 2".to_owned()));
    }

    #[test]
    fn recorded_outputs_bind_open_lists_and_names() {
        let slice = form("*X;R;R -> *Y", &["R == rank(X)", "all_le(Y, X)"]);
        let inputs = [vec![4096, 8, 512], vec![3], vec![3]];
        let inputs = present(&inputs);
        let bound =
            bind_names(&slice, &inputs, Some(&[vec![4096, 8, 256]]), Bindings::default()).expect("fits");
        assert_eq!(bound.get("Y"), Some(&ExprValue::List(vec![4096, 8, 256])));
        let heads = form("T,W -> T,Q; T,(W-Q)/2", &[]);
        let bound = bind_names(
            &heads,
            &present(&[vec![8, 96]]),
            Some(&[vec![8, 64], vec![8, 16]]),
            Bindings::default(),
        );
        assert_eq!(bound.expect("fits").get("Q"), Some(&ExprValue::Number(64)));
        let wider = bind_names(&slice, &inputs, Some(&[vec![4096, 8, 513]]), Bindings::default());
        assert_eq!(wider, Err("`all_le(Y, X)` does not hold".to_owned()));
    }

    #[test]
    fn names_are_inferred_from_the_recorded_output() {
        let inferred =
            vec![("P".to_owned(), Expr::parse("infer_permutation(X, output)").expect("an expression"))];
        let rule = ShapeRule { inferred, ..form("*X; R -> permute(X, P)", &["R == rank(X)"]) };
        let inputs = present(&[vec![32, 5], vec![2]]);
        let bound = bind_names(&rule, &inputs, Some(&[vec![5, 32]]), Bindings::default()).expect("fits");
        assert_eq!(bound.get("P"), Some(&ExprValue::List(vec![1, 0])));
        assert!(bind_names(&rule, &inputs, Some(&[vec![5, 5]]), Bindings::default()).is_err());
        let mut known = Bindings::default();
        known.set("P", ExprValue::List(vec![0, 1]));
        let bound = bind_names(&rule, &inputs, None, known).expect("fits");
        assert_eq!(rule.outputs.evaluate_shapes(&bound), Ok(vec![vec![32, 5]]));
    }

    #[test]
    fn recorded_outputs_must_equal_the_computed_ones() {
        let mm = form("M,K;K,N -> M,N", &[]);
        let got =
            bind_names(&mm, &present(&[vec![2, 3], vec![3, 4]]), Some(&[vec![2, 5]]), Bindings::default());
        assert_eq!(got, Err("output 0 is [2,5], the inputs give [2,4]".to_owned()));
        let lse = form("M -> M; ", &[]);
        let bind = |outputs: &[Vec<u64>]| {
            bind_names(&lse, &present(&[vec![2]]), Some(outputs), Bindings::default()).map(drop)
        };
        assert_eq!(bind(&[vec![2]]), Ok(()), "an optional output need not be recorded");
        assert_eq!(bind(&[vec![2], vec![]]), Ok(()));
        assert_eq!(bind(&[vec![2], vec![2]]), Err("output 1 is [2], the form does not return it".to_owned()));
    }

    #[test]
    fn empty_slots_must_be_empty_in_the_case() {
        let form = form("N; -; N; - -> N", &[]);
        let bind =
            |inputs: &[Option<Vec<u64>>]| bind_names(&form, inputs, None, Bindings::default()).map(drop);
        assert_eq!(bind(&[Some(vec![4]), None, Some(vec![4])]), Ok(()));
        let full = [Some(vec![4]), Some(vec![4]), Some(vec![4])];
        assert_eq!(bind(&full), Err("input 1: the rule leaves it out".to_owned()));
        assert_eq!(bind(&[Some(vec![4])]), Err("input 2: is empty, the rule needs it".to_owned()));
    }

    #[test]
    fn parse_errors_quote_the_term() {
        let error = |rule: &str| ShapeRule::parse("f", rule, Vec::new(), Vec::new()).expect_err("no rule");
        assert_eq!(error("M,K"), "`M,K` has no `->` between inputs and outputs");
        assert_eq!(error("M,K+1 -> M"), "`K+1` in `M,K+1 -> M` is not a name, a number or `*NAME`");
        assert!(error("*A,*B -> 1").contains("more than one"));
        assert!(error("M -> M +").contains("column"));
    }
}
