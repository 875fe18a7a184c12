//! `volvox member`: the machines that were let in.

use serde_json::json;
use volvox_host::clock::wall;
use volvox_protocol::api::{
    LifecycleResponse, MemberRequest, MemberRole, MembersResponse, NoRequest,
};

use crate::Context;
use crate::args::MemberCommand;
use crate::error::Failure;
use crate::output::{Table, age};

pub(super) fn run(context: &mut Context, command: MemberCommand) -> Result<(), Failure> {
    let client = context.client()?;
    let all: MembersResponse = client.call("/v1/members/list", &NoRequest {})?;
    match command {
        MemberCommand::List => {
            context.out.show(&json!({"members": all.members}), |out| out.table(&table(&all)))
        }
        MemberCommand::Revoke { member } => {
            let mut request = MemberRequest::default();
            if all.members.iter().any(|it| it.member_id == member) {
                request.member_id.clone_from(&member);
            } else if all.members.iter().any(|it| it.name == member) {
                request.cell_id.clone_from(&member);
            } else {
                return Err(Failure::not_found(format!("no machine is called {member:?}"))
                    .hint("`volvox member list` lists them"));
            }
            let _: LifecycleResponse = client.call("/v1/members/revoke", &request)?;
            let document = json!({"member": member, "action": "expelled"});
            context.out.show(&document, |out| out.line(&format!("{member} expelled")))
        }
    }
}

fn table(all: &MembersResponse) -> Table {
    let mut table = Table::new(&["MEMBER", "ROLE", "STATE", "JOINED", "NAME"]);
    let now = wall();
    for member in &all.members {
        let role = match member.role {
            MemberRole::Cell => "cell",
            MemberRole::Coordinator => "coordinator",
        };
        let state = if member.revoked_at.is_some() { "expelled" } else { "in" };
        table.row([
            member.member_id.clone().into(),
            role.into(),
            state.into(),
            age(now, member.joined_at).into(),
            member.name.clone().into(),
        ]);
    }
    table
}
