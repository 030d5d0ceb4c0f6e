"""What concerns every call stands in extensions, in the order of their priorities."""

import asyncio
import tempfile
from pathlib import Path

from toolpost import Denied
from toolpost.bridges.unified import (
    ApprovalExtension,
    ApprovalMode,
    AuditExtension,
    AuthExtension,
    Extension,
    ExtensionManager,
    ExtensionPriority,
    FileLoader,
    Grant,
    LoggingExtension,
    MetricsExtension,
    RateLimitExtension,
    Result,
    ToolContext,
    ToolSpecRegistry,
    UnifiedToolExecutor,
)

HERE = Path(__file__).parent


class OnlyNotes(Extension):
    """Looks at a call before it runs, and at its result before anybody else does."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder, self.seen = folder, 0

    async def before_execute(self, ctx: ToolContext) -> None:
        path = Path(self.folder, ctx.args["path"])
        if path.parent != Path(self.folder):
            raise Denied("Notes are in one folder: give the name of a note.")
        ctx.args["path"] = str(path)  # the tool gets this one, once it has been checked again

    async def after_execute(self, ctx: ToolContext, result: Result) -> Result:
        self.seen += 1  # failures are seen, too
        return result


async def main(folder: str) -> None:
    Path(folder, "today").write_text("Water the plants.", encoding="utf-8")
    only_notes, metrics = OnlyNotes(folder), MetricsExtension()
    approval = ApprovalExtension(
        approval_mode=ApprovalMode.UNSAFE_ONLY, priority=ExtensionPriority.NORMAL
    )
    extension_manager = ExtensionManager()
    extension_manager.register(
        AuthExtension(
            priority=ExtensionPriority.HIGHEST, roles={"editor": Grant(call=("*",), tier=3)}
        )
    )
    extension_manager.register(only_notes)
    extension_manager.register(approval)
    extension_manager.register(RateLimitExtension("10/s"))
    extension_manager.register(LoggingExtension())
    extension_manager.register(metrics)
    extension_manager.register(AuditExtension(Path(folder, "audit")))

    spec_registry = ToolSpecRegistry([FileLoader("tools.yaml", base=HERE)])
    await spec_registry.load_all()
    executor = UnifiedToolExecutor(
        spec_registry=spec_registry,
        extension_manager=extension_manager,
        settings={"shell": {"programs": ["rm"], "write": [folder]}},
    )
    guest = ToolContext(session_id="123", user_id="ann")
    editor = ToolContext(session_id="456", user_id="bea", roles=["editor"])
    async with executor:
        read = await executor.execute("read_note", {"path": "today"}, guest)
        assert read.output == "Water the plants.", read
        away = await executor.execute("read_note", {"path": "/etc/hostname"}, guest)
        refused = await executor.execute("delete_note", {"path": "today"}, guest)
        codes = [one.error.code for one in (away, refused) if one.error is not None]
        assert codes == ["POLICY_DENIED", "UNAUTHORIZED"]
        assert only_notes.seen == 1  # the others ended before it

        counted = await metrics.scrape()
        assert 'toolpost_errors_total{tool="delete_note",code="UNAUTHORIZED"} 1' in counted
        waits = await executor.execute("delete_note", {"path": "today"}, editor)
        assert waits.error is not None
        assert waits.error.code == "APPROVAL_REQUIRED"
        assert [one.tool for one in await approval.approvals.waiting()] == ["delete_note"]


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(folder))
