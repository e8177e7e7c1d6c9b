//! Shape rules: patterns over the shapes of a kernel's slots, and the outputs that follow.
//!
//! A rule is written like the CSV cells it speaks of: `M,K;N,K -> M,N`. On the left a name stands for
//! a dimension, `*B` for any number of dimensions, a number for itself, and `-` for a slot that holds
//! nothing. On the right each term is an expression or `*B`; a name alone that the inputs leave open is bound
//! by the recorded output.

use std::collections::BTreeSet;

use super::{Bindings, Expr, ExprError, ExprValue};
use crate::config::yaml::split_outside_brackets;

/// One way in which a kernel's shapes may hang together.
#[derive(Clone, Debug)]
pub struct ShapeRule {
    /// What the form is called in rows and messages, such as `A x B^T`.
    pub name: String,
    /// Arguments that are passed as transposed views of what lies in memory.
    pub transposed: Vec<String>,
    source: String,
    /// `None` where the slot must hold nothing.
    pub(crate) inputs: Vec<Option<Vec<PatternTerm>>>,
    pub(crate) outputs: Vec<Vec<OutputTerm>>,
    pub(crate) conditions: Vec<Expr>,
    /// Names that follow from the recorded output backwards.
    pub(crate) inferred: Vec<(String, Expr)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PatternTerm {
    Name(String),
    Number(i64),
    Rest(String),
}

#[derive(Clone, Debug)]
pub(crate) enum OutputTerm {
    Expr(Expr),
    Sequence(String),
}

/// Shapes that follow from a rule's names, such as `T,N,D; 0`.
#[derive(Clone, Debug)]
pub struct ReturnShapes(pub(crate) Vec<Vec<OutputTerm>>);

impl ReturnShapes {
    /// Parses shapes, with `;` between them; `-` is nothing that Python sees.
    ///
    /// # Errors
    /// [`RuleError::Expr`] quotes the term that cannot be read.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let shapes = text.split(';').filter(|shape| shape.trim() != "-");
        Ok(Self(shapes.map(output_terms).collect::<Result<_, _>>()?))
    }

    /// The shapes.
    ///
    /// # Errors
    /// The reason in words where a name has no value or a dimension comes out negative.
    pub fn evaluate_shapes(&self, bindings: &Bindings) -> Result<Vec<Vec<u64>>, String> {
        all_dims(&self.0, bindings)
    }
}

/// Why a text is not a shape rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// There is no `->`.
    #[error("`{0}` has no `->` between inputs and outputs")]
    NoArrow(String),
    /// A term on the left is neither a name, a number nor `*name`.
    #[error("`{term}` in `{rule}` is not a name, a number or `*NAME`")]
    Term {
        /// The term.
        term: String,
        /// The whole rule.
        rule: String,
    },
    /// A slot has two `*`.
    #[error("slot `{0}` has more than one `*NAME`, which leaves it open where one ends")]
    TwoSequences(String),
    /// A term on the right, or a condition, is no expression.
    #[error(transparent)]
    Expr(#[from] ExprError),
}

impl ShapeRule {
    /// Parses a rule and its conditions.
    ///
    /// # Errors
    /// [`RuleError`] quotes the term that cannot be read.
    pub fn parse(
        name: &str,
        rule: &str,
        conditions: &[String],
        transposed: Vec<String>,
    ) -> Result<Self, RuleError> {
        let (left, right) = rule.split_once("->").ok_or_else(|| RuleError::NoArrow(rule.to_owned()))?;
        let inputs = left.split(';').map(|slot| input_terms(slot, rule)).collect::<Result<_, _>>()?;
        let outputs = right.split(';').map(output_terms).collect::<Result<_, _>>()?;
        let conditions = conditions.iter().map(|text| Expr::parse(text)).collect::<Result<_, _>>()?;
        let source = rule.trim().to_owned();
        Ok(Self {
            name: name.to_owned(),
            transposed,
            source,
            inputs,
            outputs,
            conditions,
            inferred: Vec::new(),
        })
    }

    /// Adds names that the inputs leave open and the first recorded output tells, as `output` in expressions.
    #[must_use]
    pub fn with_inferred(mut self, inferred: Vec<(String, Expr)>) -> Self {
        self.inferred = inferred;
        self
    }

    /// The rule as it was written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the rule wants something in an input slot.
    #[must_use]
    pub fn takes_slot(&self, slot: usize) -> bool {
        self.inputs.get(slot).is_some_and(Option::is_some)
    }

    /// Number of input slots.
    #[must_use]
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Number of output slots.
    #[must_use]
    pub fn output_count(&self) -> usize {
        self.outputs.len()
    }

    /// Every name that has a value once inputs and outputs are bound.
    #[must_use]
    pub fn bound_names(&self) -> BTreeSet<&str> {
        let inputs = self.inputs.iter().flatten().flatten().filter_map(|term| match term {
            PatternTerm::Name(name) | PatternTerm::Rest(name) => Some(name.as_str()),
            PatternTerm::Number(_) => None,
        });
        let outputs = self.outputs.iter().flatten().filter_map(|term| match term {
            OutputTerm::Sequence(name) => Some(name.as_str()),
            OutputTerm::Expr(expr) => expr.bare_name(),
        });
        inputs.chain(outputs).chain(self.inferred.iter().map(|(name, _)| name.as_str())).collect()
    }

    /// Whether the outputs follow from the inputs.
    #[must_use]
    pub fn outputs_follow_from_inputs(&self) -> bool {
        let known: BTreeSet<&str> = self
            .inputs
            .iter()
            .flatten()
            .flatten()
            .filter_map(|term| match term {
                PatternTerm::Name(name) | PatternTerm::Rest(name) => Some(name.as_str()),
                PatternTerm::Number(_) => None,
            })
            .collect();
        self.outputs.iter().flatten().all(|term| match term {
            OutputTerm::Sequence(name) => known.contains(name.as_str()),
            OutputTerm::Expr(expr) => expr.variable_names().is_subset(&known),
        })
    }

    /// Binds the rule's names to shapes and checks every condition. An input is `None` where its slot holds
    /// nothing, as slots at the end that are not recorded do. Without recorded outputs, names that the inputs
    /// leave open must be among `known`.
    ///
    /// # Errors
    /// The reason in words, for the form does not fit.
    pub fn bind_names(
        &self,
        inputs: &[Option<Vec<u64>>],
        outputs: Option<&[Vec<u64>]>,
        known: Bindings,
    ) -> Result<Bindings, String> {
        if inputs.len() > self.inputs.len() {
            return Err(format!("{} input slots, the rule has {}", inputs.len(), self.inputs.len()));
        }
        let mut bindings = known;
        for (slot, terms) in self.inputs.iter().enumerate() {
            let dims = inputs.get(slot).and_then(Option::as_deref);
            match (terms, dims) {
                (Some(terms), Some(dims)) => bind_slot(terms, &to_signed(dims), &mut bindings),
                // Some kernels are shown a slot without dimensions where nothing is given.
                (None, None | Some([])) => Ok(()),
                (None, Some(_)) => Err("the rule leaves it out".to_owned()),
                (Some(_), None) => Err("is empty, the rule needs it".to_owned()),
            }
            .map_err(|why| format!("input {slot}: {why}"))?;
        }
        if let Some(outputs) = outputs {
            self.infer_names(outputs, &mut bindings)?;
            self.bind_outputs(outputs, &mut bindings)?;
        }
        for condition in &self.conditions {
            if !condition.evaluate_bool(&bindings).map_err(|error| error.to_string())? {
                return Err(format!("`{condition}` does not hold"));
            }
        }
        Ok(bindings)
    }

    fn infer_names(&self, outputs: &[Vec<u64>], bindings: &mut Bindings) -> Result<(), String> {
        for (name, expr) in &self.inferred {
            if bindings.get(name).is_some() {
                continue;
            }
            let mut known = bindings.clone();
            known.set("output", ExprValue::List(to_signed(outputs.first().map_or(&[], Vec::as_slice))));
            let value = expr.evaluate_in(&known).map_err(|error| error.to_string())?;
            bindings.set(name, value);
        }
        Ok(())
    }

    fn bind_outputs(&self, outputs: &[Vec<u64>], bindings: &mut Bindings) -> Result<(), String> {
        // Results that the call leaves out stand at the end without dimensions, or not at all.
        let left_out = self.outputs.iter().rev().take_while(|terms| terms.is_empty()).count();
        let (most, least) = (self.outputs.len(), self.outputs.len() - left_out);
        if outputs.len() > most || outputs.len() < least.max(1) {
            return Err(format!("{} output slots, the rule has {most}", outputs.len()));
        }
        for (slot, (terms, dims)) in self.outputs.iter().zip(outputs).enumerate() {
            let recorded = to_signed(dims);
            if let [OutputTerm::Sequence(name)] = terms.as_slice()
                && bindings.get(name).is_none()
            {
                bindings.set(name, ExprValue::List(recorded));
                continue;
            }
            bind_open_names(terms, &recorded, bindings);
            let expected = output_dims(terms, bindings).map_err(|why| format!("output {slot}: {why}"))?;
            if expected != recorded {
                let (recorded, expected) = (ExprValue::List(recorded), ExprValue::List(expected));
                return Err(format!("output {slot} is {recorded}, the inputs give {expected}"));
            }
        }
        Ok(())
    }

    /// The shapes of the outputs under bindings that [`ShapeRule::bind`] made.
    ///
    /// # Errors
    /// The reason in words where a name has no value or a dimension comes out negative.
    pub fn output_shapes(&self, bindings: &Bindings) -> Result<Vec<Vec<u64>>, String> {
        all_dims(&self.outputs, bindings)
    }
}

fn all_dims(shapes: &[Vec<OutputTerm>], bindings: &Bindings) -> Result<Vec<Vec<u64>>, String> {
    let shapes = shapes.iter().map(|terms| {
        let dims = output_dims(terms, bindings)?;
        dims.into_iter().map(|dim| u64::try_from(dim).map_err(|_| format!("dimension {dim}"))).collect()
    });
    shapes.collect()
}

pub(crate) fn to_signed(dims: &[u64]) -> Vec<i64> {
    dims.iter().map(|&dim| i64::try_from(dim).unwrap_or(i64::MAX)).collect()
}

fn input_terms(slot: &str, rule: &str) -> Result<Option<Vec<PatternTerm>>, RuleError> {
    let slot = slot.trim();
    if slot == "-" {
        return Ok(None);
    }
    if slot.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let terms: Vec<PatternTerm> = slot
        .split(',')
        .map(|term| {
            let term = term.trim();
            let (name, sequence) = term.strip_prefix('*').map_or((term, false), |name| (name, true));
            let is_name = name.bytes().next().is_some_and(|first| first.is_ascii_alphabetic())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            match (is_name, sequence, name.parse()) {
                (true, true, _) => Ok(PatternTerm::Rest(name.to_owned())),
                (true, false, _) => Ok(PatternTerm::Name(name.to_owned())),
                (false, false, Ok(number)) => Ok(PatternTerm::Number(number)),
                _ => Err(RuleError::Term { term: term.to_owned(), rule: rule.to_owned() }),
            }
        })
        .collect::<Result<_, _>>()?;
    if terms.iter().filter(|term| matches!(term, PatternTerm::Rest(_))).count() > 1 {
        return Err(RuleError::TwoSequences(slot.to_owned()));
    }
    Ok(Some(terms))
}

fn output_terms(slot: &str) -> Result<Vec<OutputTerm>, RuleError> {
    let slot = slot.trim();
    if slot.is_empty() {
        return Ok(Vec::new());
    }
    split_outside_brackets(slot)
        .into_iter()
        .map(|term| match term.trim().strip_prefix('*') {
            Some(name) => Ok(OutputTerm::Sequence(name.trim().to_owned())),
            None => Ok(OutputTerm::Expr(Expr::parse(term)?)),
        })
        .collect()
}

fn bind_slot(terms: &[PatternTerm], dims: &[i64], bindings: &mut Bindings) -> Result<(), String> {
    let sequence = terms.iter().position(|term| matches!(term, PatternTerm::Rest(_)));
    let fixed = terms.len() - usize::from(sequence.is_some());
    if dims.len() < fixed || (sequence.is_none() && dims.len() != fixed) {
        let least = if sequence.is_some() { "at least " } else { "" };
        return Err(format!("{} dimensions, the rule has {least}{fixed}", dims.len()));
    }
    let spread = dims.len() - fixed;
    let mut at = 0;
    for term in terms {
        match term {
            PatternTerm::Rest(name) => {
                bindings.unify(name, ExprValue::List(dims[at..at + spread].to_vec()))?;
                at += spread;
                continue;
            }
            PatternTerm::Name(name) => bindings.unify(name, ExprValue::Number(dims[at]))?,
            PatternTerm::Number(number) if *number == dims[at] => {}
            PatternTerm::Number(number) => return Err(format!("dimension {} must be {number}", dims[at])),
        }
        at += 1;
    }
    Ok(())
}

/// Gives names that the inputs leave open the dimensions that stand in their places.
fn bind_open_names(terms: &[OutputTerm], recorded: &[i64], bindings: &mut Bindings) {
    let mut at = 0;
    for term in terms {
        if let OutputTerm::Expr(expr) = term
            && let Some(name) = expr.bare_name()
            && bindings.get(name).is_none()
            && let Some(dim) = recorded.get(at)
        {
            bindings.set(name, ExprValue::Number(*dim));
        }
        match output_dims(std::slice::from_ref(term), bindings) {
            Ok(dims) => at += dims.len(),
            Err(_) => return,
        }
    }
}

pub(crate) fn output_dims(terms: &[OutputTerm], bindings: &Bindings) -> Result<Vec<i64>, String> {
    let mut dims = Vec::new();
    for term in terms {
        let value = match term {
            OutputTerm::Sequence(name) => {
                bindings.get(name).cloned().ok_or_else(|| format!("`*{name}` has no value"))?
            }
            OutputTerm::Expr(expr) => expr.evaluate_in(bindings).map_err(|error| error.to_string())?,
        };
        match value {
            ExprValue::Number(number) => dims.push(number),
            ExprValue::List(list) => dims.extend(list),
            ExprValue::Bool(_) => return Err("a comparison is not a dimension".to_owned()),
        }
    }
    Ok(dims)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(rule: &str, conditions: &[&str]) -> ShapeRule {
        let conditions: Vec<String> = conditions.iter().map(|text| (*text).to_owned()).collect();
        ShapeRule::parse("form", rule, &conditions, Vec::new()).expect("a rule")
    }

    fn outputs(form: &ShapeRule, inputs: &[Vec<u64>]) -> Result<Vec<Vec<u64>>, String> {
        form.output_shapes(&form.bind_names(&present(inputs), None, Bindings::default())?)
    }

    fn present(inputs: &[Vec<u64>]) -> Vec<Option<Vec<u64>>> {
        inputs.iter().cloned().map(Some).collect()
    }

    #[test]
    fn a_dimension_that_the_inputs_leave_open_is_bound_by_the_recorded_output() {
        let top = form("T,E -> T,K; T,K; T,E", &["K <= E"]);
        let bind = |outputs: &[Vec<u64>]| {
            top.bind_names(&present(&[vec![64, 256]]), Some(outputs), Bindings::default())
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
    fn sequences_take_what_is_left() {
        let rms = form("*B,D;D -> *B,D;*B,1", &[]);
        let got = outputs(&rms, &[vec![4096, 1, 16, 128], vec![128]]);
        assert_eq!(got, Ok(vec![vec![4096, 1, 16, 128], vec![4096, 1, 16, 1]]));
        let wrong = outputs(&rms, &[vec![4096, 1, 16, 128], vec![64]]);
        assert_eq!(wrong, Err("input 1: D is both 128 and 64".to_owned()));
    }

    #[test]
    fn exact_division_is_a_condition_of_its_own() {
        let swiglu = form("*B,D -> *B,D/2", &[]);
        assert_eq!(outputs(&swiglu, &[vec![4096, 6144]]), Ok(vec![vec![4096, 3072]]));
        assert_eq!(outputs(&swiglu, &[vec![4096, 7]]), Err("`D/2`: 7 is not a multiple of 2".to_owned()));
    }

    #[test]
    fn recorded_outputs_bind_what_the_inputs_leave_open() {
        let slice = form("*X;R;R -> *Y", &["R == rank(X)", "within(Y, X)"]);
        let inputs = [vec![4096, 8, 512], vec![3], vec![3]];
        let inputs = present(&inputs);
        let bound =
            slice.bind_names(&inputs, Some(&[vec![4096, 8, 256]]), Bindings::default()).expect("fits");
        assert_eq!(bound.get("Y"), Some(&ExprValue::List(vec![4096, 8, 256])));
        let heads = form("T,W -> T,Q; T,(W-Q)/2", &[]);
        let bound = heads.bind_names(
            &present(&[vec![8, 96]]),
            Some(&[vec![8, 64], vec![8, 16]]),
            Bindings::default(),
        );
        assert_eq!(bound.expect("fits").get("Q"), Some(&ExprValue::Number(64)));
        let wider = slice.bind_names(&inputs, Some(&[vec![4096, 8, 513]]), Bindings::default());
        assert_eq!(wider, Err("`within(Y, X)` does not hold".to_owned()));
    }

    #[test]
    fn what_only_the_output_tells_is_inferred() {
        let inferred = vec![("P".to_owned(), Expr::parse("permutation(X, output)").expect("an expression"))];
        let rule = form("*X; R -> permuted(X, P)", &["R == rank(X)"]).with_inferred(inferred);
        let inputs = present(&[vec![32, 5], vec![2]]);
        let bound = rule.bind_names(&inputs, Some(&[vec![5, 32]]), Bindings::default()).expect("fits");
        assert_eq!(bound.get("P"), Some(&ExprValue::List(vec![1, 0])));
        assert!(rule.bind_names(&inputs, Some(&[vec![5, 5]]), Bindings::default()).is_err());
        let mut known = Bindings::default();
        known.set("P", ExprValue::List(vec![0, 1]));
        let bound = rule.bind_names(&inputs, None, known).expect("fits");
        assert_eq!(rule.output_shapes(&bound), Ok(vec![vec![32, 5]]));
    }

    #[test]
    fn recorded_outputs_must_agree() {
        let mm = form("M,K;K,N -> M,N", &[]);
        let got =
            mm.bind_names(&present(&[vec![2, 3], vec![3, 4]]), Some(&[vec![2, 5]]), Bindings::default());
        assert_eq!(got, Err("output 0 is [2,5], the inputs give [2,4]".to_owned()));
        let lse = form("M -> M; ", &[]);
        let bind = |outputs: &[Vec<u64>]| {
            lse.bind_names(&present(&[vec![2]]), Some(outputs), Bindings::default()).map(drop)
        };
        assert_eq!(bind(&[vec![2]]), Ok(()), "what is left out need not be recorded");
        assert_eq!(bind(&[vec![2], vec![]]), Ok(()));
        assert_eq!(bind(&[vec![2], vec![2]]), Err("output 1 is [2], the inputs give []".to_owned()));
    }

    #[test]
    fn a_slot_can_be_left_out() {
        let form = form("N; -; N; - -> N", &[]);
        let bind = |inputs: &[Option<Vec<u64>>]| form.bind_names(inputs, None, Bindings::default()).map(drop);
        assert_eq!(bind(&[Some(vec![4]), None, Some(vec![4])]), Ok(()));
        let full = [Some(vec![4]), Some(vec![4]), Some(vec![4])];
        assert_eq!(bind(&full), Err("input 1: the rule leaves it out".to_owned()));
        assert_eq!(bind(&[Some(vec![4])]), Err("input 2: is empty, the rule needs it".to_owned()));
    }

    #[test]
    fn unreadable_rules_quote_the_term() {
        let error =
            |rule: &str| ShapeRule::parse("f", rule, &[], Vec::new()).expect_err("no rule").to_string();
        assert_eq!(error("M,K"), "`M,K` has no `->` between inputs and outputs");
        assert_eq!(error("M,K+1 -> M"), "`K+1` in `M,K+1 -> M` is not a name, a number or `*NAME`");
        assert!(error("*A,*B -> 1").contains("more than one"));
        assert!(error("M -> M +").contains("column"));
    }
}
