//! What the suite found.

use std::fmt;

/// How a case went.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Within tolerance, with the largest normalized mean square error of its steps.
    Passed {
        /// Square error over square sum.
        nmse: f64,
    },
    /// The backend says that it lacks this.
    Unsupported {
        /// In its words.
        why: String,
    },
    /// Wrong.
    Failed {
        /// What was found and what was accepted.
        why: String,
    },
}

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseReport {
    /// The operation, as [`hf2q_plan::Op::kind`] names it.
    pub op: &'static str,
    /// Shape, format and feature.
    pub case: String,
    /// How it went.
    pub outcome: Outcome,
}

/// All cases, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// What ran on what.
    pub backend: String,
    /// In the order of the tables.
    pub cases: Vec<CaseReport>,
}

impl Report {
    /// Whether every case passed; what is not supported did not.
    pub fn passed(&self) -> bool {
        self.cases.iter().all(|c| matches!(c.outcome, Outcome::Passed { .. }))
    }

    /// Cases that failed or are not supported.
    pub fn failures(&self) -> impl Iterator<Item = &CaseReport> {
        self.cases.iter().filter(|c| !matches!(c.outcome, Outcome::Passed { .. }))
    }

    /// Largest error of the passed cases of each operation, in the order of the tables.
    pub fn worst(&self) -> Vec<(&'static str, f64)> {
        let mut worst: Vec<(&'static str, f64)> = vec![];
        for c in &self.cases {
            let Outcome::Passed { nmse } = c.outcome else { continue };
            match worst.iter_mut().find(|(op, _)| *op == c.op) {
                Some((_, largest)) => *largest = largest.max(nmse),
                None => worst.push((c.op, nmse)),
            }
        }
        worst
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.failures().count();
        writeln!(f, "{}: {} cases, {} not passed", self.backend, self.cases.len(), failed)?;
        for c in self.failures() {
            match &c.outcome {
                Outcome::Failed { why } => writeln!(f, "  {} {}: {why}", c.op, c.case)?,
                Outcome::Unsupported { why } => writeln!(f, "  {} {}: not supported: {why}", c.op, c.case)?,
                Outcome::Passed { .. } => {}
            }
        }
        for (op, nmse) in self.worst() {
            writeln!(f, "  {op}: largest error {nmse:.1e}")?;
        }
        Ok(())
    }
}
