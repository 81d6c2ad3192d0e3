//! Small questions about the tree of an expression, and small changes to it.

use cel::IdedExpr;
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, LiteralValue, SelectExpr,
};

/// The dotted name that a node spells, such as `req.url.path`.
///
/// `has(a.b)` spells `a.b`.
pub(super) fn qualified_name(node: &IdedExpr) -> Option<String> {
    match &node.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) => {
            let parent = qualified_name(&select.operand)?;
            Some(format!("{parent}.{}", select.field))
        }
        _ => None,
    }
}

/// Returns true if a node is a presence test, such as `has(a.b)`.
pub(super) fn is_presence_test(node: &IdedExpr) -> bool {
    matches!(&node.expr, Expr::Select(select) if select.test)
}

/// Whether a comprehension only gives a name to a value, and loops over nothing.
///
/// The parser marks it with a variable that cannot be written in an expression.
pub(super) fn is_binding(comprehension: &ComprehensionExpr) -> bool {
    comprehension.iter_var == "#unused"
}

/// The text of a node that is a literal string.
pub(super) fn string_literal(node: &IdedExpr) -> Option<&str> {
    match &node.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

/// A call of a global function, with the place of the node that it stands for.
pub(super) fn call_node(id: u64, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    new_node(id, Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
}

/// A literal integer.
pub(super) fn integer_node(id: u64, number: usize) -> IdedExpr {
    let number = i64::try_from(number).unwrap_or(i64::MAX);
    new_node(id, Expr::Literal(LiteralValue::Int(number.into())))
}

/// A literal text.
pub(super) fn string_node(id: u64, text: &str) -> IdedExpr {
    new_node(id, Expr::Literal(LiteralValue::String(text.to_owned().into())))
}

/// How many nodes a tree has.
pub(super) fn count_nodes(node: &IdedExpr) -> usize {
    let sum = |nodes: &[IdedExpr]| nodes.iter().map(count_nodes).sum::<usize>();
    1 + match &node.expr {
        Expr::Select(select) => count_nodes(&select.operand),
        Expr::Call(call) => call.target.as_deref().map_or(0, count_nodes) + sum(&call.args),
        Expr::List(list) => sum(&list.elements),
        Expr::Map(map) => map.entries.iter().map(entry_size).sum(),
        Expr::Comprehension(it) => {
            count_nodes(&it.iter_range)
                + count_nodes(&it.accu_init)
                + count_nodes(&it.loop_step)
                + count_nodes(&it.result)
        }
        _ => 0,
    }
}

fn entry_size(entry: &IdedEntryExpr) -> usize {
    match &entry.expr {
        EntryExpr::MapEntry(entry) => count_nodes(&entry.key) + count_nodes(&entry.value),
        EntryExpr::StructField(field) => count_nodes(&field.value),
    }
}

/// What the grammar does not take for a name, or keeps for later.
const RESERVED: &str = "as break const continue else false for function if import in let loop \
                        namespace null package return true var void while";

/// The tree of a source that is nothing but the dotted name of a variable.
///
/// Most expressions in texts are, and the parser takes a hundred times as long.
pub(super) fn parse_dotted_name(source: &str) -> Option<IdedExpr> {
    let is_plain = source.split('.').all(|name| is_name(name) && !is_reserved(name));
    is_plain.then(|| variable_node(1, source))
}

fn is_reserved(name: &str) -> bool {
    RESERVED.split(' ').any(|word| word == name)
}

fn is_name(text: &str) -> bool {
    let first = text.bytes().next();
    first.is_some_and(|it| it.is_ascii_alphabetic() || it == b'_')
        && text.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_')
}

/// The node that reads a variable with a dotted name.
pub(super) fn variable_node(id: u64, name: &str) -> IdedExpr {
    match name.rsplit_once('.') {
        None => new_node(id, Expr::Ident(name.to_owned())),
        Some((parent, field)) => {
            let operand = Box::new(variable_node(id, parent));
            new_node(id, Expr::Select(SelectExpr { operand, field: field.to_owned(), test: false }))
        }
    }
}

/// Puts a call of a function with one argument around a node.
pub(super) fn wrap_in_call(inner: &mut IdedExpr, name: &str) {
    let id = inner.id;
    let taken = std::mem::take(inner);
    *inner = call_node(id, name, vec![taken]);
}

fn new_node(id: u64, expr: Expr) -> IdedExpr {
    IdedExpr { id, expr }
}
