//! What commits have changed, for those who remember what they have read.

/// What one or several commits have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changes {
    /// These documents, by their identifiers.
    Of(Vec<String>),
    /// Nobody knows what: everything that was read before may be out of date.
    All,
}

impl Changes {
    /// Those that concern documents with such identifiers; none where there are none.
    pub fn filter_ids(&self, concerns: impl Fn(&str) -> bool) -> Option<Self> {
        match self {
            Self::Of(ids) => {
                let ids: Vec<_> = ids.iter().filter(|id| concerns(id)).cloned().collect();
                (!ids.is_empty()).then_some(Self::Of(ids))
            }
            Self::All => Some(Self::All),
        }
    }

    /// Whether a document may have been changed.
    pub fn includes(&self, id: &str) -> bool {
        match self {
            Self::Of(ids) => ids.iter().any(|changed| changed == id),
            Self::All => true,
        }
    }

    /// Adds those that came later.
    pub fn extend(&mut self, later: Self) {
        match (&mut *self, later) {
            (Self::Of(ids), Self::Of(more)) => ids.extend(more),
            _ => *self = Self::All,
        }
    }
}

/// What a change has made of one document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentChange {
    /// It is new.
    Created(String),
    /// It was there before.
    Updated(String),
    /// It is gone.
    Removed {
        /// Its identifier.
        id: String,
        /// What was stored of it.
        body: String,
    },
}

impl DocumentChange {
    /// The identifier of the document.
    pub fn id(&self) -> &str {
        match self {
            Self::Created(id) | Self::Updated(id) | Self::Removed { id, .. } => id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ids: &[&str]) -> Changes {
        Changes::Of(ids.iter().map(|&id| id.to_owned()).collect())
    }

    #[test]
    fn those_are_selected_that_concern_somebody() {
        let changes = of(&["ak_1", "ipp_1", "ak_2"]);

        assert_eq!(changes.filter_ids(|id| id.starts_with("ak")), Some(of(&["ak_1", "ak_2"])));
        assert_eq!(changes.filter_ids(|id| id.starts_with("usr")), None);
        assert_eq!(Changes::All.filter_ids(|_| false), Some(Changes::All));
    }

    #[test]
    fn what_nobody_knows_includes_everything_and_stays_unknown() {
        let mut changes = of(&["ak_1"]);
        changes.extend(of(&["ak_2"]));
        assert!(changes.includes("ak_2") && !changes.includes("ak_3"));

        changes.extend(Changes::All);
        changes.extend(of(&["ak_1"]));

        assert_eq!(changes, Changes::All);
        assert!(changes.includes("ak_3"));
    }
}
