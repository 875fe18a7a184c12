//! JSON from consumers. What decodes must encode to JSON that decodes to the same.

#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;
use volvox_protocol::actual_lrp::ActualLrp;
use volvox_protocol::api::{
    ActualLrpsRequest, DesireLrpRequest, DesireTaskRequest, DesiredLrpsRequest,
    IssueCertificateRequest, JoinTokenRequest, RetireActualLrpRequest, UpdateDesiredLrpRequest,
    UpsertDomainRequest,
};
use volvox_protocol::deployment::{LrpDeploymentDefinition, LrpDeploymentUpdate};
use volvox_protocol::desired_lrp::{DesiredLrp, DesiredLrpUpdate};
use volvox_protocol::task::{Task, TaskDefinition};
use volvox_protocol::validate::{Valid, Validate};
use volvox_protocol::wire::decode_json;

fn again<T: DeserializeOwned + Serialize + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let value: T = decode_json(bytes).ok()?;
    let text = serde_json::to_vec(&value).expect("what decodes has a JSON form");
    // Keys that are always written may make a large value larger than one may send.
    if bytes.len() < 1 << 20 {
        assert_eq!(decode_json::<T>(&text).expect("our own JSON decodes"), value);
    }
    Some(value)
}

/// Runs the rules, and reads a valid value through them.
fn judge<T: DeserializeOwned + Serialize + PartialEq + Debug + Validate>(bytes: &[u8]) {
    if let Some(Ok(valid)) = again::<T>(bytes).map(Valid::new) {
        let text = serde_json::to_vec(&valid).expect("what is valid has a JSON form");
        assert!(decode_json::<Valid<T>>(&text).is_ok_and(|again| again == valid));
    }
}

fuzz_target!(|bytes: &[u8]| {
    judge::<DesiredLrp>(bytes);
    judge::<DesiredLrpUpdate>(bytes);
    judge::<LrpDeploymentDefinition>(bytes);
    judge::<LrpDeploymentUpdate>(bytes);
    judge::<TaskDefinition>(bytes);
    again::<Task>(bytes);
    again::<ActualLrp>(bytes);
    again::<ActualLrpsRequest>(bytes);
    again::<DesireLrpRequest>(bytes);
    again::<DesireTaskRequest>(bytes);
    again::<DesiredLrpsRequest>(bytes);
    again::<JoinTokenRequest>(bytes);
    again::<IssueCertificateRequest>(bytes);
    again::<RetireActualLrpRequest>(bytes);
    again::<UpdateDesiredLrpRequest>(bytes);
    again::<UpsertDomainRequest>(bytes);
});
