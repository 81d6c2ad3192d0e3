//! Who of those that an issuer vouches for may come in.

use super::identity::Identity;

/// Who may come in; everybody where all lists are empty.
///
/// Whoever is on one of the lists is let in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowRules {
    /// Email addresses, in lower case.
    pub emails: Vec<String>,
    /// The domains of email addresses, in lower case; not the domains below them.
    pub domains: Vec<String>,
    /// Names of groups, compared exactly.
    pub groups: Vec<String>,
}

impl AllowRules {
    /// Whether somebody may come in. An address counts only if the issuer says that it was verified.
    pub fn allows_identity(&self, identity: &Identity) -> bool {
        if self.emails.is_empty() && self.domains.is_empty() && self.groups.is_empty() {
            return true;
        }
        if identity.groups.iter().flatten().any(|group| self.groups.contains(group)) {
            return true;
        }
        let Some(email) = identity.verified_email().map(str::to_lowercase) else { return false };
        let domain = email.rsplit_once('@').map(|(_, domain)| domain.to_owned());
        self.emails.contains(&email) || domain.is_some_and(|it| self.domains.contains(&it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> AllowRules {
        AllowRules {
            emails: vec!["ada@other.example".to_owned()],
            domains: vec!["example.com".to_owned()],
            groups: vec!["admins".to_owned()],
        }
    }

    fn somebody(email: &str, verified: Option<bool>) -> Identity {
        let email = Some(email.to_owned());
        Identity { email, email_verified: verified, ..Identity::default() }
    }

    #[test]
    fn an_address_counts_only_when_it_is_verified() {
        for email in ["Ada@Other.example", "bob@EXAMPLE.com", "\"a@b\"@example.com"] {
            assert!(rules().allows_identity(&somebody(email, Some(true))), "{email}");
            assert!(!rules().allows_identity(&somebody(email, Some(false))), "{email}");
            assert!(!rules().allows_identity(&somebody(email, None)), "{email}");
        }
    }

    #[test]
    fn a_domain_is_compared_as_a_whole() {
        for email in
            ["bob@sub.example.com", "bob@badexample.com", "bob@example.com.evil", "example.com"]
        {
            assert!(!rules().allows_identity(&somebody(email, Some(true))), "{email}");
        }
    }

    #[test]
    fn a_group_is_enough() {
        let member =
            |group: &str| Identity { groups: Some(vec![group.to_owned()]), ..Identity::default() };

        assert!(rules().allows_identity(&member("admins")));
        assert!(!rules().allows_identity(&member("Admins")));
        assert!(AllowRules::default().allows_identity(&Identity::default()), "without rules");
    }
}
