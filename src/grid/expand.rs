//! The candidates of a space, one after the other: a number with a digit for each axis, the last one moving
//! fastest. Nothing is allocated on the way.

use super::definition::CandidateSpace;

/// The expression of a space that a candidate fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstraintViolation {
    /// Its place: what is derived first, then the constraints.
    pub place: usize,
    /// Whether it has a value, as a constraint that does not hold has.
    pub has_value: bool,
}

/// Goes through the candidates of a space.
#[derive(Clone, Debug)]
pub struct Candidates<'a> {
    space: &'a CandidateSpace,
    digits: Vec<usize>,
    numbers: Vec<i64>,
    next: u64,
    total: u64,
}

impl<'a> Candidates<'a> {
    /// In front of the first candidate.
    #[must_use]
    pub fn new(space: &'a CandidateSpace) -> Self {
        Self {
            space,
            digits: vec![0; space.axes.len()],
            numbers: vec![0; space.names.len()],
            next: 0,
            total: space.candidates(),
        }
    }

    /// Goes to the next candidate and gives its number.
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
        // As an odometer: the last axis first, and one in front of it only when it starts again.
        let mut place = self.names_of_axes();
        for (axis, digit) in self.space.axes.iter().zip(&mut self.digits).rev() {
            let width = axis.names.len();
            place -= width;
            *digit += 1;
            let is_over = *digit == axis.len();
            if is_over {
                *digit = 0;
            }
            self.numbers[place..place + width]
                .copy_from_slice(&axis.values[*digit * width..(*digit + 1) * width]);
            if !is_over {
                break;
            }
        }
        Some(index)
    }

    /// Goes to a candidate by its number, which must be below the number of candidates.
    pub fn go_to(&mut self, index: u64) {
        let mut rest = index;
        let mut place = self.names_of_axes();
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

    fn names_of_axes(&self) -> usize {
        self.space.names.len() - self.space.derived.len()
    }

    /// Computes what is derived and checks the constraints.
    ///
    /// # Errors
    /// What has no value or does not hold: what is derived first, then the constraints.
    pub fn check(&mut self) -> Result<&[i64], ConstraintViolation> {
        let first = self.names_of_axes();
        for (place, formula) in self.space.derived.iter().enumerate() {
            let value = formula.evaluate_at(&self.numbers);
            self.numbers[first + place] =
                value.map_err(|_| ConstraintViolation { place, has_value: false })?;
        }
        for (index, formula) in self.space.conditions.iter().enumerate() {
            let value = formula.evaluate_at(&self.numbers);
            if value != Ok(1) {
                return Err(ConstraintViolation {
                    place: self.space.derived.len() + index,
                    has_value: value.is_ok(),
                });
            }
        }
        Ok(&self.numbers)
    }

    /// The numbers of the candidate, as [`CandidateSpace::names`] names them; what is derived is there after
    /// [`Candidates::check`].
    #[must_use]
    pub fn numbers(&self) -> &[i64] {
        &self.numbers
    }
}
