//! Enumeration of the candidates of a space, the last axis fastest, without an allocation per candidate.

use super::definition::CandidateSpace;

/// Expression of a space that rejects a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstraintViolation {
    /// Its position: derived numbers first, then constraints.
    pub(crate) position: usize,
    /// True if it has a value, so that it is a violated constraint.
    pub(crate) has_value: bool,
}

#[derive(Clone, Debug)]
pub struct Candidates<'a> {
    space: &'a CandidateSpace,
    digits: Vec<usize>,
    numbers: Vec<i64>,
    next: u64,
    total: u64,
}

impl<'a> Candidates<'a> {
    /// An enumerator before the first candidate.
    pub fn new(space: &'a CandidateSpace) -> Self {
        Self {
            space,
            digits: vec![0; space.axes.len()],
            numbers: vec![0; space.names.len()],
            next: 0,
            total: space.candidates(),
        }
    }

    /// Moves to the next candidate and returns its index.
    pub fn advance(&mut self) -> Option<u64> {
        if self.next >= self.total {
            return None;
        }
        if self.next == 0 {
            self.go_to(0);
            return Some(0);
        }
        let index = self.next;
        self.next += 1;
        // Like an odometer: the last axis first, and the one before it only when that one starts again.
        let mut place = self.axis_names();
        for (axis, digit) in self.space.axes.iter().zip(&mut self.digits).rev() {
            let width = axis.names.len();
            place -= width;
            *digit += 1;
            let wraps = *digit == axis.len();
            if wraps {
                *digit = 0;
            }
            self.numbers[place..place + width]
                .copy_from_slice(&axis.values[*digit * width..(*digit + 1) * width]);
            if !wraps {
                break;
            }
        }
        Some(index)
    }

    /// Moves to a candidate by its index, which must be less than the number of candidates.
    pub fn go_to(&mut self, index: u64) {
        let mut rest = index;
        let mut place = self.axis_names();
        for (axis, digit) in self.space.axes.iter().zip(&mut self.digits).rev() {
            let (width, length) = (axis.names.len(), axis.len() as u64);
            place -= width;
            *digit = usize::try_from(rest % length).unwrap_or_default();
            rest /= length;
            self.numbers[place..place + width]
                .copy_from_slice(&axis.values[*digit * width..(*digit + 1) * width]);
        }
        self.next = index + 1;
    }

    fn axis_names(&self) -> usize {
        self.space.names.len() - self.space.derived.len()
    }

    /// Computes the derived numbers and checks the constraints. The error is the first derived number without a value,
    /// or else the first constraint that has none or is violated.
    pub fn check(&mut self) -> Result<&[i64], ConstraintViolation> {
        let first = self.axis_names();
        for (position, formula) in self.space.derived.iter().enumerate() {
            let value = formula.evaluate_at(&self.numbers);
            self.numbers[first + position] =
                value.map_err(|_| ConstraintViolation { position, has_value: false })?;
        }
        for (index, formula) in self.space.conditions.iter().enumerate() {
            let value = formula.evaluate_at(&self.numbers);
            if value != Ok(1) {
                return Err(ConstraintViolation {
                    position: self.space.derived.len() + index,
                    has_value: value.is_ok(),
                });
            }
        }
        Ok(&self.numbers)
    }

    /// Numbers in the order of [`CandidateSpace::names`]; derived ones are valid after [`Candidates::check`].
    pub fn numbers(&self) -> &[i64] {
        &self.numbers
    }
}
