//! Room for templates that nest deeply.
//!
//! The template engine descends by recursion, once for each level of an expression or a value. A hostile template
//! nests as often as its length or its steps allow, so both are bounded and the stack is made large enough for that.

use std::thread;

use crate::error::TextError;

/// Longest template. The longest published ones have a quarter of it.
pub(super) const MAX_SOURCE: usize = 128 << 10;

/// Address space of the stack; memory is used only as far as a template really nests.
const STACK: usize = 1 << 30;

/// Runs `work` on a stack of its own.
pub(super) fn on_deep_stack<T: Send>(
    work: impl FnOnce() -> Result<T, TextError> + Send,
) -> Result<T, TextError> {
    thread::scope(|scope| {
        let spawned = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        let thread = spawned.map_err(|e| TextError::TemplateThread { message: e.to_string() })?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
