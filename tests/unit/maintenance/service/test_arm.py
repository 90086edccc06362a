"""Approvals by way of Azure Resource Manager: the one call that is made, and what its answers mean."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from azure.core.exceptions import AzureError

from shared.core.errors import UnsafeSettings
from shared.core.settings import Settings
from shared.maintenance.service.arm import ArmClient, NoApproval, code_of, url_of
from tests.unit.maintenance.service.fake_arm import Azure, serving, token

VM = "/subscriptions/5d9b/resourceGroups/rg-1/providers/Microsoft.Compute/virtualMachines/vm_1"
SET = "/subscriptions/5d9b/resourceGroups/rg-1/providers/Microsoft.Compute/virtualMachineScaleSets/set_1"
EVENT = "602d9444-d2cd-49c7-8624-8643e7171297"
VERSION = "2025-11-01"


@pytest.fixture
async def azure() -> AsyncIterator[tuple[Azure, str]]:
    async with serving() as found:
        yield found


async def test_an_approval_is_one_post_with_the_apps_own_token(azure: tuple[Azure, str]) -> None:
    there, endpoint = azure
    arm = ArmClient(None, VERSION, endpoint=endpoint, token=token)
    assert await arm(VM, EVENT) == ("posted", 200)
    await arm.close()
    path = f"{VM}/providers/Microsoft.Maintenance/scheduledevents/{EVENT}/acknowledge?api-version=2025-11-01"
    assert there.calls == [("POST", path, "Bearer a-token")]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        *((status, "posted") for status in (200, 202, 204)),
        (410, "gone"),
        *((status, "unreachable") for status in (429, 500, 503)),
        *((status, "refused") for status in (307, 400, 401, 403, 404)),
    ],
)
async def test_what_azures_answers_mean(azure: tuple[Azure, str], status: int, outcome: str) -> None:
    there, endpoint = azure
    there.status = status
    arm = ArmClient(None, VERSION, endpoint=endpoint, token=token)
    assert await arm(VM, EVENT) == (outcome, status)
    await arm.close()
    assert len(there.calls) == 1, "a redirection is not followed"


@pytest.mark.parametrize(
    ("code", "outcome"), [("InvalidScheduledEventId", "gone"), ("ResourceNotFound", "refused"), ("InvalidResourceType", "refused")]
)
async def test_only_a_404_about_the_event_itself_means_that_it_is_gone(azure: tuple[Azure, str], code: str, outcome: str) -> None:
    there, endpoint = azure
    there.status, there.body = 404, f'{{"error": {{"code": "{code}"}}}}'.encode()
    arm = ArmClient(None, VERSION, endpoint=endpoint, token=token)
    assert await arm(VM, EVENT) == (outcome, 404)
    await arm.close()


async def test_a_refusal_tells_its_code_and_the_version_that_was_asked_for(
    azure: tuple[Azure, str], caplog: pytest.LogCaptureFixture
) -> None:
    there, endpoint = azure
    there.status, there.body = 400, b'{"error": {"code": "NoRegisteredProviderFound", "message": "The supported api-versions are ..."}}'
    arm = ArmClient(None, "2031-01-01-preview", endpoint=endpoint, token=token)
    assert await arm(VM, EVENT) == ("refused", 400)
    await arm.close()
    assert there.calls[0][1].endswith("?api-version=2031-01-01-preview")
    [record] = caplog.records
    assert "400 " in record.getMessage() and "api-version 2031-01-01-preview" in record.getMessage()
    assert (vars(record)["action"], vars(record)["code"]) == ("maintenance_arm_refused", "NoRegisteredProviderFound")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b"<html>", b'{"error": "x"}', b'{"error": {"code": 7}}', b'{"error": {"code": "a b\\n"}}', b"[" * 9999]
)
def test_a_body_without_a_code_has_none(body: bytes) -> None:
    assert code_of(body) == ""


@pytest.mark.parametrize("given", ["2025-11-01&x=y", "latest", "2025-11-01-beta"])
def test_a_version_that_cannot_be_one_is_refused_at_the_start(given: str) -> None:
    with pytest.raises(UnsafeSettings, match="TOCSIN_ARM_API_VERSION"):
        Settings(storage="UseDevelopmentStorage=true", arm_api_version=given)  # type: ignore[arg-type]


async def test_tokens_are_asked_for_at_the_cloud_to_which_approvals_go() -> None:
    class Credential:
        asked = ""

        async def get_token(self, scope: str) -> object:
            self.asked = scope
            raise AzureError("no token here")

    endpoint = Settings(storage="UseDevelopmentStorage=true", arm_endpoint="https://management.usgovcloudapi.net").arm_endpoint  # type: ignore[arg-type]
    arm = ArmClient(None, VERSION, endpoint=endpoint)
    arm._credential = credential = Credential()
    with pytest.raises(OSError, match="no token"):
        await arm._authorize()
    assert credential.asked == "https://management.usgovcloudapi.net/.default"


def test_no_other_endpoint_gets_the_apps_token() -> None:
    with pytest.raises(UnsafeSettings, match="TOCSIN_ARM_ENDPOINT"):
        Settings(storage="UseDevelopmentStorage=true", arm_endpoint="https://evil.example")  # type: ignore[arg-type]


async def test_azure_away_or_a_token_that_cannot_be_had_is_unreachable() -> None:
    async def none() -> str:
        raise OSError("no token")

    arm = ArmClient(None, VERSION, endpoint="http://127.0.0.1:9", token=token)
    assert await arm(VM, EVENT) == ("unreachable", 0)
    await arm.close()
    arm = ArmClient(None, VERSION, endpoint="http://127.0.0.1:9", token=none)
    assert await arm(VM, EVENT) == ("unreachable", 0)
    await arm.close()


def test_an_instance_of_a_scale_set_is_approved_for_by_way_of_the_set() -> None:
    assert url_of(f"{SET}/virtualMachines/3", EVENT, VERSION).startswith(
        f"https://management.azure.com{SET}/providers/Microsoft.Maintenance/"
    )


def test_a_resource_group_may_have_letters_of_any_language() -> None:
    assert "/resourceGroups/r%C3%BCg_(1)/" in url_of(VM.replace("rg-1", "rüg_(1)"), EVENT, VERSION)


@pytest.mark.parametrize(
    ("resource", "event_id"),
    [
        (VM.replace("rg-1", ".."), EVENT),
        (VM.replace("rg-1", "rüg%2f"), EVENT),
        ("", EVENT),
        ("/subscriptions/5d9b", EVENT),
        (f"{VM}/../../x", EVENT),
        (f"{VM}?a=b", EVENT),
        (f"{VM}#", EVENT),
        (VM.replace("Microsoft.Compute", "Microsoft.Storage"), EVENT),
        ("https://evil.example" + VM, EVENT),
        (VM, "../../x"),
        (VM, ""),
    ],
)
async def test_what_an_agent_says_of_its_vm_never_makes_another_call(azure: tuple[Azure, str], resource: str, event_id: str) -> None:
    there, endpoint = azure
    with pytest.raises(NoApproval):
        url_of(resource, event_id, VERSION)
    arm = ArmClient(None, VERSION, endpoint=endpoint, token=token)
    assert await arm(resource, event_id) == ("refused", 0)
    await arm.close()
    assert there.calls == []
