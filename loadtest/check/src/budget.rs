//! I12: memory, files and disk stay inside their budgets.

/// What is measured, and how much of it there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// What it is: `edge memory`, `open files`.
    pub what: String,
    /// The unit: `bytes`, `files`.
    pub unit: &'static str,
    /// How much there may be.
    pub max: u64,
}

/// More than the budget was used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("I12 {}: {used} {}, at most {}", .budget.what, .budget.unit, .budget.max)]
pub struct OverBudget {
    /// The budget.
    pub budget: Budget,
    /// What was used.
    pub used: u64,
}

impl Budget {
    /// Compares what is used with what may be.
    ///
    /// # Errors
    /// When it is more.
    pub fn check(&self, used: u64) -> Result<(), OverBudget> {
        if used <= self.max {
            return Ok(());
        }
        Err(OverBudget { budget: self.clone(), used })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_may_be_used_up_and_not_more() {
        let budget = Budget { what: "edge memory".to_owned(), unit: "bytes", max: 10 };
        assert!(budget.check(10).is_ok());
        let over = budget.check(11).expect_err("above");
        assert_eq!(over.to_string(), "I12 edge memory: 11 bytes, at most 10");
    }
}
