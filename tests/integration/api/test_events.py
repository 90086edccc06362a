async def test_smoke(world):
    made = await world.demo.post("/api/v1/events", {"delay": "PT5S", "payload": {"a": 1}})
    print(made)
    assert made.status == 201
    await world.run(6)
    print((await world.demo.get("/api/v1/events/" + made.json()["id"])).json())
    batch = await world.demo.post("/api/v1/events/batch", [{"id": "a", "delay": "PT1H", "payload": 1}, {"id": "a", "delay": "PT1H", "payload": 1}, {"id": "a", "delay": "PT1H", "payload": 2}])
    print(batch.json())
