//! Graphs of `torch.npu`: launches that are captured instead of executed, and replayed later.

use super::{
    api_args::{bind_signature, int_argument},
    protocol::{ApiReply, PyArguments, PyError, runtime},
    session::ApiSession,
};

/// Answers a call of this module; `None` for other functions. A graph is a number of the process.
pub(super) fn call(
    session: &mut ApiSession,
    api: &str,
    arguments: &PyArguments,
) -> Option<Result<ApiReply, PyError>> {
    let action: fn(&mut ApiSession, i64) -> Result<(), PyError> = match api {
        "torch.npu.NPUGraph.capture_begin" => |session, graph| {
            session.log.begin_capture(graph);
            Ok(())
        },
        "torch.npu.NPUGraph.capture_end" => |session, _| {
            session.log.end_capture();
            Ok(())
        },
        "torch.npu.NPUGraph.replay" => |session, graph| {
            session
                .log
                .replay(graph)
                .then_some(())
                .ok_or_else(|| runtime("Called NPUGraph::replay without a capture"))
        },
        _ => return None,
    };
    let bound = bind_signature("graph(int graph) -> ()", arguments, &[]);
    Some(bound.and_then(|bound| {
        action(session, int_argument(&bound, "graph").unwrap_or_default()).map(|()| ApiReply::Nothing)
    }))
}
