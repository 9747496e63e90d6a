"""Flask: `flask --app with_flask run`, and beside it `flask --app with_flask penstock worker`."""

from flask import Flask, current_app, jsonify
from flask.typing import ResponseReturnValue
from work import app, who

from penstock.integrations.flask import FlaskPenstock

api = Flask(__name__)
api.config["SHOP"] = "tea"
FlaskPenstock(app, api, dashboard="/jobs", guard=who)


@app.task
def greet_from_shop(name: str) -> str:
    """In a thread of the worker, inside the application context."""
    return f"hello {name} of {current_app.config['SHOP']}"


@api.post("/greetings/<name>")
def begin(name: str) -> ResponseReturnValue:
    return jsonify(job=greet_from_shop.enqueue(name).id)


@api.get("/greetings/<job_id>")
def end(job_id: str) -> ResponseReturnValue:
    return jsonify(said=app.job(job_id).result(timeout=30))
