//! What an expression looks at.

use http::HeaderName;

use super::{Quick, TextOperand, ValueIterator, ValueSource, Whole};
use crate::facts::{Message, NumberFact, TextFact};

/// Something that an expression looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FactRead<'q> {
    Text(TextFact),
    Number(NumberFact),
    Header(Message, &'q HeaderName),
    Cookies,
    Query,
}

impl Quick {
    /// All that may be looked at.
    pub(in super::super) fn fact_reads(&self) -> Vec<FactRead<'_>> {
        let mut found = Vec::new();
        self.add_reads(&mut found);
        found
    }

    fn add_reads<'q>(&'q self, found: &mut Vec<FactRead<'q>>) {
        match self {
            Self::Is(_) => {}
            Self::Not(inner) => inner.add_reads(found),
            Self::And(one, other) | Self::Or(one, other) => {
                one.add_reads(found);
                other.add_reads(found);
            }
            Self::Equal(one, other)
            | Self::Contains(one, other)
            | Self::StartsWith(one, other)
            | Self::EndsWith(one, other) => {
                one.add_reads(found);
                other.add_reads(found);
            }
            Self::Compare(_, one, other) => {
                found.extend([one, other].iter().filter_map(|it| it.fact_read()))
            }
            Self::Matches(text, _) | Self::InRange(text, _) | Self::IsPrivate(text) => {
                text.add_reads(found);
            }
            Self::OneOf(text, texts) => {
                text.add_reads(found);
                texts.iter().for_each(|text| text.add_reads(found));
            }
            Self::AmongValues(text, values) => {
                text.add_reads(found);
                found.push(values.fact_read());
            }
            Self::HasHeader(message, name) => found.push(FactRead::Header(*message, name)),
            Self::HasCookie(_) => found.push(FactRead::Cookies),
            Self::HasParameter(name) => {
                name.add_reads(found);
                found.push(FactRead::Query);
            }
            Self::Some(values, inner) | Self::Every(values, inner) => {
                found.push(values.fact_read());
                inner.add_reads(found);
            }
        }
    }
}

impl TextOperand {
    fn add_reads<'q>(&'q self, found: &mut Vec<FactRead<'q>>) {
        found.extend(match self {
            Self::Literal(_) | Self::Current => None,
            Self::Variable(variable) => Some(FactRead::Text(*variable)),
            Self::Value(values, _) => Some(values.fact_read()),
            Self::Cookie(_) => Some(FactRead::Cookies),
        });
    }
}

impl Whole {
    fn fact_read<'q>(self) -> Option<FactRead<'q>> {
        match self {
            Self::Literal(_) => None,
            Self::Variable(variable) => Some(FactRead::Number(variable)),
        }
    }
}

impl ValueIterator {
    fn fact_read(&self) -> FactRead<'_> {
        match &self.of {
            ValueSource::Header(message, name) => FactRead::Header(*message, name),
            ValueSource::Parameter(_) => FactRead::Query,
        }
    }
}
