//! What is worth a word in the line of a captured request.

/// The marks of a captured request.
#[derive(Debug, Default)]
pub(super) struct RequestMarks {
    pub mocked: bool,
    pub held: bool,
    pub edited: bool,
    pub policy: bool,
    pub pinned: bool,
    pub imported: bool,
    pub replay: bool,
    pub failed: bool,
}

impl RequestMarks {
    /// The words, in brackets behind two blanks; nothing where there is none.
    pub fn suffix(&self) -> String {
        let marks = [
            (self.mocked, "mock"),
            (self.held, "held"),
            (self.edited, "edited"),
            (self.policy, "policy"),
            (self.pinned, "pinned"),
            (self.imported, "imported"),
            (self.replay, "replay"),
            (self.failed, "failed"),
        ];
        let words: Vec<_> =
            marks.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| *word).collect();
        if words.is_empty() { String::new() } else { format!("  [{}]", words.join(", ")) }
    }
}
