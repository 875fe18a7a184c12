//! Requests and answers of our own routes: Diego knows no messages for them. The API does not
//! let protobuf come to those routes; these lines only say so to the compiler.

use super::{DiegoDecodeError, DiegoReply, DiegoRequest};
use crate::api::{
    CallbacksResponse, CellRequestBody, CellStatesResponse, ExecRequest, ExplainRequest,
    ExplainResponse, IssueCertificateRequest, IssueCertificateResponse, JoinTokenIdRequest,
    JoinTokenRequest, JoinTokenResponse, JoinTokensResponse, LogsRequest, LrpDeploymentResponse,
    LrpDeploymentsResponse, MemberRequest, MembersResponse,
};
use crate::deployment::{
    ActivateLrpDeploymentDefinitionRequest, CreateLrpDeploymentRequest, LrpDeploymentsRequest,
    RollbackDesiredLrpRequest, UpdateLrpDeploymentRequest,
};

macro_rules! unspoken {
    (requests: $($request:ty),* ; replies: $($reply:ty),* ;) => {
        $( impl DiegoRequest for $request {
            fn from_diego(_: &[u8]) -> Result<Self, DiegoDecodeError> {
                Err(DiegoDecodeError::Undecodable)
            }
        } )*
        $( impl DiegoReply for $reply {
            fn into_diego(self) -> Vec<u8> {
                Vec::new()
            }
        } )*
    };
}

unspoken! {
    requests: ActivateLrpDeploymentDefinitionRequest, CellRequestBody, CreateLrpDeploymentRequest,
        ExecRequest, ExplainRequest, IssueCertificateRequest, JoinTokenIdRequest, JoinTokenRequest, LogsRequest,
        LrpDeploymentsRequest, MemberRequest, RollbackDesiredLrpRequest,
        UpdateLrpDeploymentRequest;
    replies: CallbacksResponse, CellStatesResponse, ExplainResponse, IssueCertificateResponse, JoinTokenResponse,
        JoinTokensResponse, LrpDeploymentResponse, LrpDeploymentsResponse, MembersResponse;
}
