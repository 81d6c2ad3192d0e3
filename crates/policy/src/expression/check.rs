//! The limits of an expression, and the names in it.
//!
//! Traffic policy sheet, section 12: nothing else limits how deep a tree is or how often a loop
//! runs, and both can end the process.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, operators};

use super::super::Phase;
use super::super::address::AddressKind;
use super::functions;
use super::tree::{is_binding, qualified_name};
use super::{ExpressionError, ExpressionResult, Reads, nesting, variables};

/// How many loops may run inside one another.
const LOOPS: usize = 2;

/// The names of types, which are values too: `type(x) == int`.
const TYPES: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "type",
    "uint",
];

/// Refuses a tree that is too deep, loops too much or names what is not there in `phase`, except
/// for these names; tells what it reads that matters.
pub(super) fn check_tree<'tree>(
    tree: &'tree IdedExpr,
    phase: Phase,
    names: &[&'tree str],
) -> ExpressionResult<Reads> {
    let reads = Reads::default();
    let mut walk = ExpressionWalk { phase, bound: names.to_vec(), loops: 0, reads };
    walk.visit_node(tree, 0)?;
    Ok(walk.reads)
}

struct ExpressionWalk<'tree> {
    phase: Phase,
    /// The names that are no variables, and the variables of the loops around the node.
    bound: Vec<&'tree str>,
    loops: usize,
    reads: Reads,
}

impl<'tree> ExpressionWalk<'tree> {
    fn visit_node(&mut self, node: &'tree IdedExpr, depth: usize) -> ExpressionResult<()> {
        nesting::check_depth(depth)?;
        let depth = depth + 1;
        match &node.expr {
            Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.check_name(name),
            Expr::Select(select) => match qualified_name(node) {
                Some(name) => self.check_name(&name),
                None => self.visit_node(&select.operand, depth),
            },
            Expr::Call(call) => self.visit_call(call, depth),
            Expr::List(list) => self.visit_all(&list.elements, depth),
            Expr::Map(map) => self.visit_entries(&map.entries, depth),
            Expr::Comprehension(comprehension) => self.visit_comprehension(comprehension, depth),
            Expr::Struct(message) => Err(ExpressionError::invalid_expression(format!(
                "there is no message type {}",
                message.type_name
            ))),
            Expr::Unspecified => {
                Err(ExpressionError::invalid_expression("the expression is incomplete"))
            }
        }
    }

    fn visit_all(&mut self, nodes: &'tree [IdedExpr], depth: usize) -> ExpressionResult<()> {
        nodes.iter().try_for_each(|node| self.visit_node(node, depth))
    }

    fn visit_entries(
        &mut self,
        entries: &'tree [IdedEntryExpr],
        depth: usize,
    ) -> ExpressionResult<()> {
        entries.iter().try_for_each(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                self.visit_node(&entry.key, depth)?;
                self.visit_node(&entry.value, depth)
            }
            EntryExpr::StructField(field) => self.visit_node(&field.value, depth),
        })
    }

    fn check_name(&mut self, name: &str) -> ExpressionResult<()> {
        let root = name.split('.').next().unwrap_or(name);
        if root.starts_with('@') || self.bound.contains(&root) || TYPES.contains(&name) {
            return Ok(());
        }
        self.reads.path |= variables::reads_path(name);
        if let Some(kind) = AddressKind::from_variable(name) {
            self.reads.addresses.insert(kind);
        }
        variables::check_variable(name, self.phase).map_err(ExpressionError::invalid_expression)
    }

    fn visit_call(&mut self, call: &'tree CallExpr, depth: usize) -> ExpressionResult<()> {
        self.visit_all(&call.args, depth)?;
        let arguments = call.args.len();
        let Some(target) = call.target.as_deref() else {
            return check_function(
                &call.func_name,
                functions::is_global(&call.func_name, arguments),
            );
        };
        if let Some(space) = qualified_name(target) {
            let name = format!("{space}.{}", call.func_name);
            if functions::is_global(&name, arguments) {
                return Ok(());
            }
        }
        check_function(&call.func_name, functions::is_member(&call.func_name, arguments))?;
        self.visit_node(target, depth)
    }

    fn visit_comprehension(
        &mut self,
        comprehension: &'tree ComprehensionExpr,
        depth: usize,
    ) -> ExpressionResult<()> {
        self.visit_node(&comprehension.iter_range, depth)?;
        self.visit_node(&comprehension.accu_init, depth)?;
        if is_binding(comprehension) {
            return self.visit_node(&comprehension.result, depth);
        }
        if self.loops == LOOPS {
            return Err(ExpressionError::invalid_expression(format!(
                "more than {LOOPS} loops inside one another"
            )));
        }
        self.loops += 1;
        self.bound.push(&comprehension.iter_var);
        self.visit_node(&comprehension.loop_cond, depth)?;
        self.visit_node(&comprehension.loop_step, depth)?;
        self.bound.pop();
        self.loops -= 1;
        self.visit_node(&comprehension.result, depth)
    }
}

fn check_function(name: &str, found: bool) -> ExpressionResult<()> {
    let is_operator = name.starts_with('@') || name.contains('_') && OPERATORS.contains(&name);
    if found || is_operator {
        return Ok(());
    }
    Err(ExpressionError::invalid_expression(format!("no function {name} takes these arguments")))
}

const OPERATORS: &[&str] = &[
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::SUBSTRACT,
    operators::ADD,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER_EQUALS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::LESS,
    operators::NEGATE,
    operators::INDEX,
];
