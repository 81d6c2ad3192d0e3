//! Which expressions are decided without the engine.
//!
//! The tree is the one that [`lower`](super::super::lower) leaves.

use cel::IdedExpr;
use cel::common::ast::{
    CallExpr, ComprehensionExpr, Expr, ListExpr, LiteralValue, SelectExpr, operators,
};
use http::HeaderName;

use super::super::pattern::CompiledPattern;
use super::super::tree::{qualified_name, string_literal};
use super::{Comparison, Quick, TextOperand, ValueIterator, ValueSource, Whole};
use crate::facts::{self, Message, NumberFact};

/// The truth that a tree is, if it can be decided without the engine.
pub(in super::super) fn compile_predicate(tree: &IdedExpr) -> Option<Quick> {
    Compiler { current: None }.compile_truth(tree)
}

/// Compiles the inside of a loop, or what is outside of all.
#[derive(Clone, Copy)]
struct Compiler<'t> {
    /// What the loop calls the value that it is at.
    current: Option<&'t str>,
}

impl<'t> Compiler<'t> {
    fn compile_truth(self, node: &'t IdedExpr) -> Option<Quick> {
        match &node.expr {
            Expr::Literal(LiteralValue::Boolean(truth)) => Some(Quick::Is(*truth.inner())),
            Expr::Select(select) if select.test => self.compile_has(select),
            Expr::Call(call) => self.compile_call(call),
            Expr::Comprehension(comprehension) => self.compile_loop(comprehension),
            _ => None,
        }
    }

    /// `has(req.headers.accept)`.
    fn compile_has(self, select: &SelectExpr) -> Option<Quick> {
        let message = self.header_message(&select.operand)?;
        Some(Quick::HasHeader(message, parse_header_name(&select.field)?))
    }

    fn compile_call(self, call: &'t CallExpr) -> Option<Quick> {
        if let Some(target) = &call.target {
            return self.compile_method(target, &call.func_name, &call.args);
        }
        let name = call.func_name.as_str();
        match (name, call.args.as_slice()) {
            (operators::LOGICAL_NOT, [inner]) => Some(negate_predicate(self.compile_truth(inner)?)),
            (operators::LOGICAL_AND, [one, other]) => {
                Some(Quick::And(self.compile_truth(one)?.into(), self.compile_truth(other)?.into()))
            }
            (operators::LOGICAL_OR, [one, other]) => {
                Some(Quick::Or(self.compile_truth(one)?.into(), self.compile_truth(other)?.into()))
            }
            (operators::IN, [one, among]) => self.compile_membership(one, among),
            ("@matches", [text, pattern]) => {
                let Expr::Ident(name) = &pattern.expr else { return None };
                Some(Quick::Matches(self.compile_text(text)?, CompiledPattern::index(name)?))
            }
            ("@has_header", [headers, name]) => Some(Quick::HasHeader(
                self.header_message(headers)?,
                parse_header_name(string_literal(name)?)?,
            )),
            ("@has_entry", [map, name]) => match self.unbound_name(map)?.as_str() {
                "req.cookies" => Some(Quick::HasCookie(string_literal(name)?.to_owned())),
                "req.url.query_params" => Some(Quick::HasParameter(self.compile_text(name)?)),
                _ => None,
            },
            ("inCidrRange", [address, range]) => Some(Quick::InRange(
                self.compile_text(address)?,
                string_literal(range)?.parse().ok(),
            )),
            (_, [one, other]) => self.compile_comparison(name, one, other),
            _ => None,
        }
    }

    fn compile_method(
        self,
        target: &'t IdedExpr,
        name: &str,
        args: &'t [IdedExpr],
    ) -> Option<Quick> {
        let make = match (name, args) {
            ("isPrivateIp", []) => return Some(Quick::IsPrivate(self.compile_text(target)?)),
            ("contains", [_]) => Quick::Contains,
            ("startsWith", [_]) => Quick::StartsWith,
            ("endsWith", [_]) => Quick::EndsWith,
            _ => return None,
        };
        Some(make(self.compile_text(target)?, self.compile_text(args.first()?)?))
    }

    fn compile_comparison(
        self,
        operator: &str,
        one: &'t IdedExpr,
        other: &'t IdedExpr,
    ) -> Option<Quick> {
        use Comparison::{AtMost, Equal, Less};
        if let (Some(one), Some(other)) = (self.compile_text(one), self.compile_text(other)) {
            return match operator {
                operators::EQUALS => Some(Quick::Equal(one, other)),
                operators::NOT_EQUALS => Some(negate_predicate(Quick::Equal(one, other))),
                _ => None,
            };
        }
        let (one, other) = (self.compile_integer(one)?, self.compile_integer(other)?);
        Some(match operator {
            operators::EQUALS => Quick::Compare(Equal, one, other),
            operators::NOT_EQUALS => negate_predicate(Quick::Compare(Equal, one, other)),
            operators::LESS => Quick::Compare(Less, one, other),
            operators::LESS_EQUALS => Quick::Compare(AtMost, one, other),
            operators::GREATER => Quick::Compare(Less, other, one),
            operators::GREATER_EQUALS => Quick::Compare(AtMost, other, one),
            _ => return None,
        })
    }

    /// `x in [a, b]`, `'x' in req.headers` and `x in req.headers['y']`.
    fn compile_membership(self, one: &'t IdedExpr, among: &'t IdedExpr) -> Option<Quick> {
        let among = unwrap_search(among);
        if let Expr::List(ListExpr { elements, .. }) = &among.expr {
            let texts =
                elements.iter().map(|element| self.compile_text(element)).collect::<Option<_>>()?;
            return Some(Quick::OneOf(self.compile_text(one)?, texts));
        }
        if let Some(message) = self.header_message(among) {
            return Some(Quick::HasHeader(message, parse_header_name(string_literal(one)?)?));
        }
        Some(Quick::AmongValues(self.compile_text(one)?, self.compile_values(among)?))
    }

    /// `exists` and `all`; loops inside of loops are left to the engine.
    fn compile_loop(self, comprehension: &'t ComprehensionExpr) -> Option<Quick> {
        let Expr::Literal(LiteralValue::Boolean(start)) = &comprehension.accu_init.expr else {
            return None;
        };
        let Expr::Call(range) = &comprehension.iter_range.expr else { return None };
        let Expr::Call(step) = &comprehension.loop_step.expr else { return None };
        let ("@range", [values, _]) = (range.func_name.as_str(), range.args.as_slice()) else {
            return None;
        };
        let [accumulator, inner] = step.args.as_slice() else { return None };
        let is_accumulator = |node: &IdedExpr| matches!(&node.expr, Expr::Ident(name) if *name == comprehension.accu_var);
        if self.current.is_some()
            || !is_accumulator(accumulator)
            || !is_accumulator(&comprehension.result)
        {
            return None;
        }
        let values = self.compile_values(values)?;
        let inside = Self { current: Some(&comprehension.iter_var) };
        match (*start.inner(), step.func_name.as_str()) {
            (false, operators::LOGICAL_OR) => {
                Some(Quick::Some(values, inside.compile_truth(inner)?.into()))
            }
            (true, operators::LOGICAL_AND) => {
                Some(Quick::Every(values, inside.compile_truth(inner)?.into()))
            }
            _ => None,
        }
    }

    fn compile_text(self, node: &'t IdedExpr) -> Option<TextOperand> {
        if let Some(text) = string_literal(node) {
            return Some(TextOperand::Literal(text.to_owned()));
        }
        match &node.expr {
            Expr::Ident(name) if Some(name.as_str()) == self.current => Some(TextOperand::Current),
            Expr::Select(select) if select.test => None,
            Expr::Select(SelectExpr { operand, field, .. })
                if field == "value" || field == "Value" =>
            {
                let Expr::Call(call) = &operand.expr else { return self.compile_variable(node) };
                let ("@cookie", [cookies, name]) = (call.func_name.as_str(), call.args.as_slice())
                else {
                    return None;
                };
                let is_request = self.unbound_name(cookies)? == "req.cookies";
                is_request.then_some(TextOperand::Cookie(string_literal(name)?.to_owned()))
            }
            Expr::Call(call) => {
                let (operators::INDEX, [values, number]) =
                    (call.func_name.as_str(), call.args.as_slice())
                else {
                    return None;
                };
                let number = usize::try_from(integer_literal(number)?).ok()?;
                Some(TextOperand::Value(self.compile_values(values)?, number))
            }
            _ => self.compile_variable(node),
        }
    }

    fn compile_variable(self, node: &IdedExpr) -> Option<TextOperand> {
        facts::TextFact::from_name(&self.unbound_name(node)?).map(TextOperand::Variable)
    }

    fn compile_integer(self, node: &IdedExpr) -> Option<Whole> {
        if let Some(number) = integer_literal(node) {
            return Some(Whole::Literal(number));
        }
        NumberFact::from_name(&self.unbound_name(node)?).map(Whole::Variable)
    }

    /// The values that a node stands for: `req.headers['x']`, `getReqHeader('x')` and so on.
    fn compile_values(self, node: &'t IdedExpr) -> Option<ValueIterator> {
        let (map, name, may_be_missing) = match &node.expr {
            Expr::Select(select) if !select.test => {
                (&*select.operand, select.field.as_str(), false)
            }
            Expr::Call(call) => {
                let [map, name] = call.args.as_slice() else { return None };
                let may_be_missing = match call.func_name.as_str() {
                    operators::INDEX => false,
                    "@header" | "@entry" => true,
                    _ => return None,
                };
                (map, string_literal(name)?, may_be_missing)
            }
            _ => return None,
        };
        let of = match self.header_message(map) {
            Some(message) => ValueSource::Header(message, parse_header_name(name)?),
            None if self.unbound_name(map)? == "req.url.query_params" => {
                ValueSource::Parameter(name.to_owned())
            }
            None => return None,
        };
        Some(ValueIterator { of, may_be_missing })
    }

    /// The message whose headers a node is.
    fn header_message(self, node: &IdedExpr) -> Option<Message> {
        match self.unbound_name(node)?.as_str() {
            "req.headers" => Some(Message::Request),
            "res.headers" => Some(Message::Response),
            _ => None,
        }
    }

    /// The name that a node spells, unless it is one inside of what a loop is at.
    fn unbound_name(self, node: &IdedExpr) -> Option<String> {
        if matches!(&node.expr, Expr::Select(select) if select.test) {
            return None;
        }
        let name = qualified_name(node)?;
        (name.split('.').next() != self.current).then_some(name)
    }
}

fn negate_predicate(inner: Quick) -> Quick {
    Quick::Not(Box::new(inner))
}

fn parse_header_name(name: &str) -> Option<HeaderName> {
    HeaderName::try_from(name).ok()
}

fn integer_literal(node: &IdedExpr) -> Option<i64> {
    match &node.expr {
        Expr::Literal(LiteralValue::Int(number)) => Some(*number.inner()),
        _ => None,
    }
}

/// What is looked through, without the call that pays for it.
fn unwrap_search(node: &IdedExpr) -> &IdedExpr {
    match &node.expr {
        Expr::Call(call) if call.func_name == "@search" => call.args.first().unwrap_or(node),
        _ => node,
    }
}
