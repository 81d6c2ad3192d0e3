//! Why a client cannot be made.

/// An option that is missing or unusable.
#[derive(Debug, thiserror::Error)]
#[error("{option}{}{problem}", shown(.value.as_deref()))]
pub struct ConfigError {
    /// The option's name, or the name of the variable of the environment that stands for it.
    pub option: &'static str,
    /// Its value as it may be shown, without secrets; `None` where it is one, or there is none.
    pub value: Option<String>,
    /// What is wrong with it.
    pub problem: String,
}

fn shown(value: Option<&str>) -> String {
    value.map_or_else(|| " ".to_owned(), |value| format!("={value}: "))
}

impl ConfigError {
    /// An option whose value no error shows.
    pub fn new(option: &'static str, problem: impl Into<String>) -> Self {
        Self { option, value: None, problem: problem.into() }
    }

    /// An option with a value that may be shown, and what it takes.
    pub fn invalid_value(
        option: &'static str,
        value: impl Into<String>,
        problem: impl Into<String>,
    ) -> Self {
        Self { option, value: Some(value.into()), problem: problem.into() }
    }
}
