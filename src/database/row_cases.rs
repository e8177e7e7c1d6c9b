//! Rows of a kernel's CSV as cases.

use csv::ByteRecord;

use super::{DatabaseError, KernelCsv, columns};
use crate::domain::{Case, CaseAttributes, KernelName, SignatureCells, Verdict};

/// One row, read as a case.
#[derive(Clone, Debug)]
pub struct RowCase {
    /// Index of the row in its table.
    pub row: usize,
    /// Line in the file, from 1.
    pub line: u64,
    /// The case, or why the row cannot be read as one.
    pub case: Result<Case, String>,
    /// The verdict of the replay measurement that the row shows; `None` where it shows none. Rows of
    /// older tools show a number without a verdict, which counts as `ok`.
    pub shown: Option<Verdict>,
    /// Samples behind it, where the row says so.
    pub samples: Option<usize>,
}

/// Why a row without input shapes is no case.
pub(crate) const NO_SHAPES: &str = "the row has no input shapes";

/// Where the columns of a row's case and result are.
#[derive(Debug)]
pub(crate) struct RowColumns {
    signature: [usize; 6],
    average: Option<usize>,
    verdict: Option<usize>,
    samples: Option<usize>,
    /// Names and places of the columns that hold attributes.
    attributes: Vec<(String, usize)>,
}

impl RowColumns {
    pub(crate) fn from_table(table: &KernelCsv) -> Result<Self, DatabaseError> {
        Self::find(table.columns())
            .map_err(|column| DatabaseError::MissingColumn { path: table.path().to_owned(), column })
    }

    /// Finds them by name; an error is the first column of the signature that is missing.
    pub(crate) fn find(header: &[String]) -> Result<Self, &'static str> {
        let column = |name: &str| header.iter().position(|column| column == name);
        let attributes =
            header.iter().enumerate().filter(|(_, name)| CaseAttributes::name_of(name).is_some());
        let attributes = attributes.map(|(index, name)| (name.clone(), index)).collect();
        let mut signature = [0; 6];
        for (index, name) in signature.iter_mut().zip(columns::SIGNATURE) {
            *index = column(name).ok_or(name)?;
        }
        let [average, verdict, samples] = [columns::AVERAGE, columns::VERDICT, columns::SAMPLES].map(column);
        Ok(Self { signature, average, verdict, samples, attributes })
    }

    /// The column of a cell of the signature, in the order of [`columns::SIGNATURE`].
    pub(crate) const fn signature_column(&self, cell: usize) -> usize {
        self.signature[cell]
    }

    /// The case of a row, or why it is none.
    pub(crate) fn case(&self, kernel: &KernelName, cells: &ByteRecord) -> Result<Case, String> {
        let text = |index: usize| {
            std::str::from_utf8(cells.get(index).unwrap_or_default()).map_err(|_| "is not UTF-8".to_owned())
        };
        let side = |at: usize| {
            let [shapes, dtypes, formats] = [0, 1, 2].map(|offset| text(self.signature[at + offset]));
            SignatureCells { shapes: shapes?, dtypes: dtypes?, formats: formats? }
                .parse()
                .map_err(|error| error.to_string())
        };
        let inputs = side(0)?;
        if inputs.is_empty() {
            return Err(NO_SHAPES.to_owned());
        }
        let mut attributes = CaseAttributes::default();
        for (name, index) in &self.attributes {
            attributes.set(name, text(*index)?);
        }
        Ok(Case { kernel: kernel.clone(), inputs, outputs: side(3)?, attributes })
    }
}

/// Reads every row of a table as a case.
///
/// # Errors
/// [`DatabaseError::MissingColumn`] where a signature column is missing. Cells that cannot be read are no error
/// here: they are the row's own state.
pub fn row_cases(kernel: &KernelName, table: &KernelCsv) -> Result<Vec<RowCase>, DatabaseError> {
    let columns = RowColumns::from_table(table)?;
    let mut cases = Vec::with_capacity(table.len());
    table.for_each_row(|row, cells| {
        let text = |index: Option<usize>| std::str::from_utf8(cells.get(index?)?).ok().map(str::trim);
        let measured = text(columns.average).and_then(|cell| cell.parse::<f64>().ok());
        let measured = measured.filter(|value| value.is_finite() && *value > 0.0);
        let verdict = || text(columns.verdict).and_then(|cell| cell.parse().ok()).unwrap_or(Verdict::Ok);
        cases.push(RowCase {
            row,
            line: table.line(row).unwrap_or_default(),
            case: columns.case(kernel, cells),
            shown: measured.map(|_| verdict()),
            samples: text(columns.samples).and_then(|cell| cell.parse().ok()),
        });
    });
    Ok(cases)
}
