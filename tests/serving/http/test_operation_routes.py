import re

from fastapi.testclient import TestClient

from .tiny_run import NUM_ITEMS, app_for


def test_health_and_facts_describe_what_is_served(client):
    assert client.get("/healthz").json() == {"status": "ok", "scheme": "dhe", "items": NUM_ITEMS}
    client.post("/embed", json={"ids": [1, 2]})
    facts = client.get("/facts").json()
    assert facts["num_items"] == NUM_ITEMS
    assert facts["requests"] == 2
    assert 0 < facts["latency_ms"]["p50"] <= facts["latency_ms"]["p99"]
    assert facts["hot_hit_rate"] == 0


def test_metrics_count_requests_ids_and_batches_and_never_show_a_path(client):
    client.post("/embed", json={"ids": [1, 2, 3]})
    client.post("/embed", json={"ids": "x"})
    client.get("/some-secret")
    text = client.get("/metrics").text
    for line in (
        'tableless_requests_total{route="/embed",status="200"} 1.0',
        'tableless_requests_total{route="/embed",status="422"} 1.0',
        'tableless_requests_total{route="other",status="404"} 1.0',
        'tableless_ids_embedded_total{side="item"} 3.0',
        'tableless_batch_size_count{side="item"} 1.0',
        "tableless_hot_ids_asked_total 3.0",
        "tableless_requests_in_flight 0.0",
        'tableless_request_seconds_count{route="/embed"} 2.0',
    ):
        assert line in text.splitlines()
    assert "some-secret" not in text


def test_the_documentation_names_every_route_and_loads_nothing_from_elsewhere(client):
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    for path in client.get("/openapi.json").json()["paths"]:
        assert path in page.text
    assert "//" not in page.text.replace("http://testserver", "")


def test_a_result_that_is_nan_is_null_among_the_facts(run):
    (run / "results.json").write_text('{"auc": NaN}')
    with TestClient(app_for(run)) as client:
        assert client.get("/facts").json()["results"] == {"auc": None}


def test_the_page_and_its_files_are_served_and_nothing_else_on_the_disk(client):
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    names = re.findall(r'(?:src|href)="(page/[^"]+)"', page.text)
    assert names
    for name in names:
        assert client.get(f"/{name}").status_code == 200
    for name in ("..%2fsettings.py", "%2e%2e/http/app.py", "nothing.js", "a%00b"):
        assert client.get(f"/page/{name}").status_code == 404


def test_two_applications_count_apart(run, client):
    client.get("/healthz")
    with TestClient(app_for(run)) as other:
        assert other.get("/facts").json()["requests"] == 0
